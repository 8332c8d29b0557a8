//! The log: `tracing` to standard error, as text or as one JSON object a line. Standard output is never written to, so that it
//! stays free for what a command prints.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{LogConfig, LogFormat};

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("log.level is not a filter: {0}; write a level such as info, or directives such as info,lockgate::backend=debug")]
    Filter(#[from] ParseError),
    #[error("the log was set up before: {0}")]
    Twice(#[from] TryInitError),
}

/// Sets up the log of this process. Once only; the filter of a checked configuration is always good.
pub fn init(config: &LogConfig) -> Result<(), LogError> {
    subscriber(config, io::stderr, io::stderr().is_terminal())?.try_init()?;
    Ok(())
}

fn subscriber<W>(config: &LogConfig, writer: W, colours: bool) -> Result<impl SubscriberInitExt + Send + Sync, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(&config.filter)?;
    let (text, json) = match config.format {
        LogFormat::Text => {
            let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(colours).with_target(false);
            (Some(layer), None)
        }
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().with_writer(writer).flatten_event(true).with_span_list(false);
            (None, Some(layer))
        }
    };
    Ok(tracing_subscriber::registry().with(filter).with(text).with(json))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        let config = LogConfig { format, filter: filter.to_owned() };
        let guard = subscriber(&config, move || writer.clone(), false).unwrap().set_default();
        let span = tracing::info_span!("session", session = %crate::telemetry::SessionTag("id"), principal = "ann");
        span.in_scope(|| tracing::info!(backend = "time", "upstream connected"));
        tracing::debug!("too quiet");
        drop(guard);
        String::from_utf8(captured.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn json_lines_carry_the_fields_of_event_and_span() {
        let text = logged(LogFormat::Json, "info");
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(line["message"], "upstream connected");
        assert_eq!(line["backend"], "time");
        assert_eq!(line["span"]["principal"], "ann");
        assert_eq!(line["span"]["session"].as_str().unwrap().len(), 12);
    }

    #[test]
    fn text_lines_are_filtered_by_level() {
        let text = logged(LogFormat::Text, "info");
        assert!(text.contains("upstream connected") && text.contains("backend=\"time\"") && text.contains("principal=\"ann\""));
        assert!(!text.contains("too quiet"));
        assert!(logged(LogFormat::Text, "debug").contains("too quiet"));
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_an_error() {
        let config = LogConfig { filter: "a=b=c".to_owned(), ..LogConfig::default() };
        assert!(matches!(subscriber(&config, io::stderr, false).err(), Some(LogError::Filter(_))));
    }
}
