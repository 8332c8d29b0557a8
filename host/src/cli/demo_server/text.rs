//! The demo server `text`: counts, slugs, line differences, an analysis that takes its time and reports progress, and the
//! prompt `summarize`. Holds no state.

use std::time::Duration;

use rmcp::{
    Json, RoleServer, ServerHandler,
    handler::server::{
        router::{prompt::PromptRouter, tool::ToolRouter},
        wrapper::Parameters,
    },
    model::{GetPromptResult, ProgressNotificationParam, PromptMessage, Role, ServerCapabilities, ServerConfig},
    prompt, prompt_handler, prompt_router,
    service::RequestContext,
    tool, tool_handler, tool_router,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DemoServer, identity, text_ops};

/// The most pieces `analyze` reads a text in.
const MAX_STEPS: u32 = 50;
/// The longest pause of `analyze` between two pieces, in milliseconds.
const MAX_PAUSE_MS: u64 = 2_000;
/// The longest slug: the length of a file name.
const MAX_SLUG: u32 = 255;

/// The `text` server. See the module's documentation.
#[derive(Debug, Clone)]
pub struct TextServer {
    tools: ToolRouter<Self>,
    prompts: PromptRouter<Self>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct WordCount {
    /// The text to count.
    text: String,
}

/// The size of a text.
#[derive(Debug, Serialize, JsonSchema)]
struct Counts {
    /// Words: runs without whitespace that have a letter or a digit.
    words: usize,
    /// Lines, the last one counted whether or not it ends with a newline.
    lines: usize,
    /// Unicode characters (scalar values).
    characters: usize,
    /// Bytes in UTF-8.
    bytes: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Slugify {
    /// The text, for example a title.
    text: String,
    /// The longest slug wanted, in characters; 80 when absent.
    #[serde(default = "default_slug")]
    #[schemars(range(min = 1, max = MAX_SLUG))]
    max_length: u32,
}

fn default_slug() -> u32 {
    80
}

/// A slug.
#[derive(Debug, Serialize, JsonSchema)]
struct Slug {
    /// Lower case ASCII letters, digits and hyphens.
    slug: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Diff {
    /// The text as it was.
    before: String,
    /// The text as it is now.
    after: String,
}

/// The difference between two texts, line by line.
#[derive(Debug, Serialize, JsonSchema)]
struct Difference {
    /// Lines only in `after`.
    added: usize,
    /// Lines only in `before`.
    removed: usize,
    /// All lines, each after `+`, `-` or a space.
    diff: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Analyze {
    /// The text to read.
    text: String,
    /// In how many pieces to read it, with a progress message after each; 5 when absent.
    #[serde(default = "default_steps")]
    #[schemars(range(min = 1, max = MAX_STEPS))]
    steps: u32,
    /// How long to pause after each piece, in milliseconds; 100 when absent.
    #[serde(default = "default_pause")]
    #[schemars(range(max = MAX_PAUSE_MS))]
    pause_ms: u64,
}

fn default_steps() -> u32 {
    5
}

fn default_pause() -> u64 {
    100
}

/// What `analyze` found.
#[derive(Debug, Serialize, JsonSchema)]
struct Analysis {
    /// All words.
    words: usize,
    /// The ten most frequent words, most frequent first.
    most_frequent: Vec<Frequency>,
}

/// A word and how often it occurs.
#[derive(Debug, Serialize, JsonSchema)]
struct Frequency {
    word: String,
    count: usize,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Summarize {
    /// The text to summarize.
    text: String,
    /// How many sentences the summary should have; 3 when absent. A number, written as text like every prompt argument.
    #[serde(default)]
    sentences: Option<String>,
}

#[tool_router(router = tools)]
impl TextServer {
    /// A text server.
    pub fn new() -> Self {
        Self { tools: Self::tools(), prompts: Self::prompts() }
    }

    #[tool(
        title = "Word count",
        description = "Counts the words, lines, characters and bytes of a text.",
        annotations(read_only_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn word_count(&self, Parameters(args): Parameters<WordCount>) -> Json<Counts> {
        let text = args.text;
        Json(Counts {
            words: text_ops::words(&text).count(),
            lines: text.lines().count(),
            characters: text.chars().count(),
            bytes: text.len(),
        })
    }

    #[tool(
        title = "Slugify",
        description = "Turns a title into a slug for a URL or a file name: 'Ça va, World?' becomes 'ca-va-world'.",
        annotations(read_only_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn slugify(&self, Parameters(args): Parameters<Slugify>) -> Result<Json<Slug>, String> {
        in_range("max_length", args.max_length, 1, MAX_SLUG)?;
        let slug = text_ops::slugify(&args.text, args.max_length as usize);
        if slug.is_empty() {
            return Err("the text has no letter or digit that a slug can keep".to_owned());
        }
        Ok(Json(Slug { slug }))
    }

    #[tool(
        title = "Line difference",
        description = "Compares two texts line by line and shows what was added and removed. At most 1,000 lines each.",
        annotations(read_only_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn diff(&self, Parameters(args): Parameters<Diff>) -> Result<Json<Difference>, String> {
        let diff = text_ops::line_diff(&args.before, &args.after)?;
        let text_ops::LineDiff { added, removed, text } = diff;
        Ok(Json(Difference { added, removed, diff: text }))
    }

    #[tool(
        title = "Analyze",
        description = "Reads a text piece by piece and finds its most frequent words. Takes its time, reports progress \
                       after each piece to a client that asks for it, and can be cancelled.",
        annotations(read_only_hint = true, idempotent_hint = true, open_world_hint = false)
    )]
    async fn analyze(&self, Parameters(args): Parameters<Analyze>, context: RequestContext<RoleServer>) -> Result<Json<Analysis>, String> {
        in_range("steps", args.steps, 1, MAX_STEPS)?;
        in_range("pause_ms", args.pause_ms, 0, MAX_PAUSE_MS)?;
        let pieces = text_ops::pieces(&args.text, args.steps as usize);
        let pause = Duration::from_millis(args.pause_ms);
        let mut words = 0;
        for (index, piece) in pieces.iter().enumerate() {
            words += text_ops::words(piece).count();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = context.ct.cancelled() => return Err("cancelled".to_owned()),
            }
            if let Some(token) = context.meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, (index + 1) as f64)
                    .with_total(pieces.len() as f64)
                    .with_message(format!("{words} words so far"));
                // A client that is gone needs no progress; the cancellation ends the loop.
                let _ = context.peer.notify_progress(progress).await;
            }
        }
        let most_frequent = text_ops::most_frequent(&args.text, 10).into_iter().map(|(word, count)| Frequency { word, count }).collect();
        Ok(Json(Analysis { words, most_frequent }))
    }
}

#[prompt_router(router = "prompts")]
impl TextServer {
    #[prompt(title = "Summarize a text", description = "Asks for a summary of a text in a few sentences.")]
    async fn summarize(&self, Parameters(args): Parameters<Summarize>) -> GetPromptResult {
        let sentences = args.sentences.as_deref().unwrap_or("3");
        GetPromptResult::new(vec![PromptMessage::new_text(
            Role::User,
            format!("Summarize the following text in {sentences} sentences. Keep names and numbers.\n\n{}", args.text),
        )])
        .with_description("A summary in a few sentences")
    }
}

#[tool_handler(router = self.tools)]
#[prompt_handler(router = self.prompts)]
impl ServerHandler for TextServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_prompts().build();
        ServerConfig::new(capabilities)
            .with_server_info(identity(DemoServer::Text))
            .with_instructions("Count, compare and shorten texts. Nothing is stored.")
    }
}

/// Arguments reach a tool unchecked against its schema; this is the check, in words that the model can act on.
fn in_range<N: PartialOrd + std::fmt::Display>(name: &str, value: N, least: N, most: N) -> Result<(), String> {
    if value < least || value > most {
        return Err(format!("{name} is {value}; it must be between {least} and {most}"));
    }
    Ok(())
}
