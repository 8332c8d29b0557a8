//! Durations (`250ms`, `5s`, `30m`, `12h`, `7d`) and sizes (`64KiB`, `16MiB`) as the file writes them.
//!
//! A bare number is refused rather than guessed, except `0`. Decimals are fine (`1.5s`). `KB`, `MB` and `GB` are powers of
//! 1000, `KiB`, `MiB` and `GiB` of 1024.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

const DURATIONS: &[(&str, f64)] = &[("ms", 0.001), ("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3600.0), ("d", 86_400.0)];
const SIZES: &[(&str, f64)] =
    &[("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];

/// A duration of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A duration of the file, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaybeTime(pub Option<Duration>);

/// A duration of the file, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOrOff(pub Option<Duration>);

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Reads `30m`; the error says what a duration looks like.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = measure(text, DURATIONS, "a duration", "5s, 250ms, 30m, 12h or 7d")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("`{text}` is too long"))
}

/// Reads `16MiB`; the error says what a size looks like.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = measure(text, SIZES, "a size", "512KiB, 16MiB or 1GiB")?;
    // Exact below 2^53 bytes, far above every bound of the configuration.
    if bytes < 9.0e15 { Ok(bytes as u64) } else { Err(format!("`{text}` is too large")) }
}

fn measure(text: &str, units: &[(&str, f64)], what: &str, examples: &str) -> Result<f64, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(0.0);
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_')).unwrap_or(text.len());
    let (number, unit) = (text[..split].replace('_', ""), text[split..].trim_start());
    let number: f64 = number.parse().map_err(|_| format!("`{text}` is not {what}; write {examples}"))?;
    if unit.is_empty() {
        return Err(format!("`{text}` has no unit; write {what} such as {examples}"));
    }
    match units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((_, factor)) => Ok(number * factor),
        None => {
            let names: Vec<_> = units.iter().map(|(name, _)| *name).collect();
            Err(format!("`{unit}` is not a unit of {what}; use one of {}", names.join(", ")))
        }
    }
}

/// Shows a duration as the file would write it.
pub fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        if ms >= size && ms.is_multiple_of(size) {
            return format!("{}{unit}", ms / size);
        }
    }
    if ms == 0 && duration.is_zero() { "0".to_owned() } else { format!("{ms}ms") }
}

/// Shows a size as the file would write it.
pub fn show_size(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) {
            return format!("{}{unit}", bytes / size);
        }
    }
    if bytes == 0 { "0".to_owned() } else { format!("{bytes}B") }
}

// === impl Deserialize ===

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_duration(&text).map(Time).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for MaybeTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "none" {
            return Ok(MaybeTime(None));
        }
        let time = parse_duration(&text).map_err(|e| de::Error::custom(format_args!("{e}, or `none`")))?;
        Ok(MaybeTime(Some(time)))
    }
}

impl<'de> Deserialize<'de> for TimeOrOff {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "off" {
            return Ok(TimeOrOff(None));
        }
        let time = parse_duration(&text).map_err(|e| de::Error::custom(format_args!("{e}, or `off`")))?;
        Ok(TimeOrOff(Some(time)))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_size(&text).map(Size).map_err(de::Error::custom)
    }
}

// === impl Display ===

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_duration(self.0))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_size(self.0))
    }
}

// === impl JsonSchema ===

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": r"^(0|[0-9._]+ *([mM][sS]|[sS]|[mM]|[mM][iI][nN]|[hH]|[dD])|.*\$\{.*)$",
            "maximum": 0,
            "minimum": 0,
            "description": "A duration with its unit: `250ms`, `5s`, `30m`, `12h`, `7d`. A bare number is refused, except 0.",
            "examples": ["250ms", "5s", "30m"],
        })
    }
}

impl JsonSchema for MaybeTime {
    fn schema_name() -> Cow<'static, str> {
        "DurationOrNone".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration with its unit, or `none`.",
            "anyOf": [generator.subschema_for::<Time>(), { "const": "none" }],
        })
    }
}

impl JsonSchema for TimeOrOff {
    fn schema_name() -> Cow<'static, str> {
        "DurationOrOff".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration with its unit, or `off`.",
            "anyOf": [generator.subschema_for::<Time>(), { "const": "off" }],
        })
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": r"^(0|[0-9._]+ *([kKmMgG][iI]?)?[bB]|.*\$\{.*)$",
            "maximum": 0,
            "minimum": 0,
            "description": "A number of bytes with its unit: `512KiB`, `16MiB`, `1GiB`; `KB`, `MB`, `GB` are powers of 1000. A bare number is refused, except 0.",
            "examples": ["512KiB", "16MiB"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_are_read_with_their_units() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_size("16MiB"), Ok(16 << 20));
        assert_eq!(parse_size("16 mib"), Ok(16 << 20));
        assert_eq!(parse_size("1_000KB"), Ok(1_000_000));
    }

    #[test]
    fn a_bare_number_is_refused_with_advice() {
        assert_eq!(parse_duration("30").unwrap_err(), "`30` has no unit; write a duration such as 5s, 250ms, 30m, 12h or 7d");
        assert!(parse_size("1024").unwrap_err().contains("has no unit"));
        assert!(parse_size("1 parsec").unwrap_err().contains("use one of B, KB"));
        assert!(parse_duration("soon").unwrap_err().contains("is not a duration"));
        assert!(parse_duration("999999999999999999999d").unwrap_err().contains("too long"));
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for text in ["0", "1ms", "90s", "5m", "12h", "7d"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
        for text in ["1B", "1500B", "64KiB", "16MiB", "2GiB"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
    }
}
