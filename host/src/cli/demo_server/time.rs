//! The demo server `time`: what the clock says at any UTC offset, conversions, and differences. Holds no state; every answer
//! follows from its arguments and the system clock.

use std::time::{SystemTime, UNIX_EPOCH};

use rmcp::{
    ErrorData, Json, RoleServer, ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{
        ListResourceTemplatesResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
        ResourceContents, ResourceTemplate, ServerCapabilities, ServerConfig,
    },
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    DemoServer,
    calendar::{self, Civil, Moment, Offset},
    identity,
};

/// The `time` server. See the module's documentation.
#[derive(Debug, Clone)]
pub struct TimeServer {
    tools: ToolRouter<Self>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct GetTime {
    /// The offset from UTC to show the time at, such as `+02:00`, `-05:30` or `Z`. UTC when absent.
    #[serde(default)]
    utc_offset: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct ConvertTime {
    /// The time to convert: RFC 3339 with an offset, such as `2026-02-28T13:45:00+02:00`.
    time: String,
    /// The offset from UTC to convert it to, such as `-05:00` or `Z`.
    utc_offset: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TimeBetween {
    /// The earlier time: RFC 3339, or a date alone, such as `2026-02-28`.
    from: String,
    /// The later time: RFC 3339, or a date alone. It may lie before `from`; the result is then negative.
    to: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct AddToTime {
    /// The time to begin with: RFC 3339, or a date alone.
    time: String,
    /// Days to add; negative to go back.
    #[serde(default)]
    days: i32,
    /// Hours to add; negative to go back.
    #[serde(default)]
    hours: i32,
    /// Minutes to add; negative to go back.
    #[serde(default)]
    minutes: i32,
}

/// One moment, at one offset.
#[derive(Debug, Serialize, JsonSchema)]
struct Time {
    /// RFC 3339, at the offset asked for.
    time: String,
    /// The offset from UTC: `Z` or such as `+02:00`.
    utc_offset: String,
    /// The day of the week, in English.
    weekday: String,
    /// Seconds since 1970-01-01T00:00:00Z.
    unix_seconds: i64,
    /// The week of ISO 8601, 1 to 53.
    iso_week: i64,
    /// 1 for the first of January.
    day_of_year: i64,
}

/// The time between two moments: the whole of it in seconds, and the same in parts.
#[derive(Debug, Serialize, JsonSchema)]
struct Difference {
    /// All of it in seconds; negative when `to` lies before `from`.
    total_seconds: i64,
    /// Whole days.
    days: i64,
    /// Hours beyond the days, 0 to 23.
    hours: i64,
    /// Minutes beyond the hours, 0 to 59.
    minutes: i64,
    /// Seconds beyond the minutes, 0 to 59.
    seconds: i64,
}

#[tool_router(router = tools)]
impl TimeServer {
    /// A server with the system's clock.
    pub fn new() -> Self {
        Self { tools: Self::tools() }
    }

    #[tool(
        title = "Current time",
        description = "The current date and time at a UTC offset, with the weekday, the ISO week and the day of the year.",
        annotations(read_only_hint = true, open_world_hint = false)
    )]
    async fn get_time(&self, Parameters(args): Parameters<GetTime>) -> Result<Json<Time>, String> {
        let offset = args.utc_offset.as_deref().map_or(Ok(Offset::UTC), str::parse)?;
        Ok(Json(report(now()?, offset)))
    }

    #[tool(
        title = "Convert a time",
        description = "Shows a time at another UTC offset. It is the same moment, as a clock there shows it.",
        annotations(read_only_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn convert_time(&self, Parameters(args): Parameters<ConvertTime>) -> Result<Json<Time>, String> {
        let (moment, _) = calendar::parse(&args.time)?;
        Ok(Json(report(moment, args.utc_offset.parse()?)))
    }

    #[tool(
        title = "Time between",
        description = "How much time lies between two moments, in seconds and in days, hours, minutes and seconds.",
        annotations(read_only_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn time_between(&self, Parameters(args): Parameters<TimeBetween>) -> Result<Json<Difference>, String> {
        let (from, _) = calendar::parse(&args.from)?;
        let (to, _) = calendar::parse(&args.to)?;
        let total_seconds = to.unix() - from.unix();
        let left = total_seconds.abs();
        Ok(Json(Difference { total_seconds, days: left / 86_400, hours: left / 3_600 % 24, minutes: left / 60 % 60, seconds: left % 60 }))
    }

    #[tool(
        title = "Add to a time",
        description = "The moment some days, hours and minutes after a time (before it, when they are negative).",
        annotations(read_only_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn add_to_time(&self, Parameters(args): Parameters<AddToTime>) -> Result<Json<Time>, String> {
        let (moment, offset) = calendar::parse(&args.time)?;
        let step = i64::from(args.days) * 86_400 + i64::from(args.hours) * 3_600 + i64::from(args.minutes) * 60;
        let moment = Moment::from_unix(moment.unix() + step).ok_or("the result lies outside the years 0001 to 9999")?;
        Ok(Json(report(moment, offset)))
    }
}

#[tool_handler(router = self.tools)]
impl ServerHandler for TimeServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_server_info(identity(DemoServer::Time))
            .with_instructions("Times are RFC 3339; offsets are fixed differences from UTC, not time zones.")
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let clock = ResourceTemplate::new("clock://{utc_offset}", "clock")
            .with_title("A clock")
            .with_description("The current time at a UTC offset, such as clock://+02:00 or clock://Z")
            .with_mime_type("text/plain");
        Ok(ListResourceTemplatesResult::with_all_items(vec![clock]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let unknown = || {
            let message = format!("no resource {}; try clock://Z", request.uri);
            ErrorData::resource_not_found(message, None)
        };
        let offset = request.uri.strip_prefix("clock://").ok_or_else(unknown)?;
        // RFC 6570 expands `+02:00` to `%2B02%3A00`.
        let offset = offset.replace("%2B", "+").replace("%3A", ":");
        let offset = offset.parse().map_err(|_| unknown())?;
        let now = now().map_err(|error| ErrorData::internal_error(error, None))?;
        let contents = ResourceContents::text(now.at(offset).to_string(), &request.uri);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

fn now() -> Result<Moment, String> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|since| i64::try_from(since.as_secs()).ok());
    seconds.and_then(Moment::from_unix).ok_or_else(|| "the system clock is not set".to_owned())
}

fn report(moment: Moment, offset: Offset) -> Time {
    let civil: Civil = moment.at(offset);
    Time {
        time: civil.to_string(),
        utc_offset: offset.to_string(),
        weekday: civil.weekday().to_owned(),
        unix_seconds: moment.unix(),
        iso_week: civil.iso_week(),
        day_of_year: civil.day_of_year(),
    }
}
