//! A scripted MCP server over standard input and output. Synchronous, one message at a time, no dependency on an SDK:
//! it answers with the bytes that the test wants and misbehaves in exactly one way at a time.
//!
//!     stdio-backend --log FILE [--exit-at-start] [--silent] [--deaf-to-eof] [--greet-with-garbage] [--grandchild]
//!
//! | tool | what it does |
//! |---|---|
//! | `echo` | gives its raw arguments back as `structuredContent`, spliced in as they came |
//! | `pid`, `env`, `cwd` | what the process is; `env` takes `{"name": …}` |
//! | `garbage` | writes lines that are no JSON-RPC before the answer, one of them not UTF-8 |
//! | `flood` | writes 4 MiB to standard error, then answers |
//! | `crash` | exits with code 3 instead of an answer |
//! | `hang` | reads on, never answers this call |
//! | `progress` | three progress notifications, then the answer |
//! | `ask` | sends `elicitation/create`, answers with what the client said |
//! | `chatter` | sends `{"count": N}` log messages of `{"bytes": N}` each, then answers |
//! | `big` | answers with `{"bytes": N}` bytes of text |
//!
//! The log has a line per event: `PID start`, `PID in MESSAGE`, `PID eof`, `PID exit`.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, Write},
    time::Duration,
};

use lockgate_tests::raw::{self, Message, member};

struct Backend {
    log: Option<File>,
    out: std::io::Stdout,
    input: std::io::StdinLock<'static>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let path = arguments.iter().position(|argument| argument == "--log").and_then(|at| arguments.get(at + 1));
    let log = path.map(|path| OpenOptions::new().create(true).append(true).open(path).expect("the log can be opened"));
    let mut backend = Backend { log, out: std::io::stdout(), input: std::io::stdin().lock() };
    backend.note("start");
    if has("--exit-at-start") {
        backend.note("exit");
        std::process::exit(7);
    }
    if has("--grandchild") {
        // Holds the pipes open after its parent is gone, as a shell wrapper's child does.
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep exists");
        backend.note(&format!("child {}", child.id()));
        std::thread::spawn(move || child.wait());
    }
    if has("--greet-with-garbage") {
        backend.write(b"Starting the server...\n\n{\"not\":\"a message\"}\n[1,2\n");
    }
    let silent = has("--silent");
    while let Some(message) = backend.read() {
        if !silent {
            backend.answer(&message);
        }
    }
    backend.note("eof");
    if has("--deaf-to-eof") {
        std::thread::sleep(Duration::from_secs(600));
    }
    backend.note("exit");
}

impl Backend {
    fn note(&mut self, text: &str) {
        if let Some(log) = &mut self.log {
            let _ = log.write_all(format!("{} {text}\n", std::process::id()).as_bytes());
        }
    }

    fn read(&mut self) -> Option<String> {
        let mut line = Vec::new();
        self.input.read_until(b'\n', &mut line).ok().filter(|&read| read > 0)?;
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        let shown: String = line.chars().take(4000).collect();
        self.note(&format!("in {shown}"));
        Some(line)
    }

    fn write(&mut self, bytes: &[u8]) {
        let _ = self.out.write_all(bytes);
        let _ = self.out.flush();
    }

    fn send(&mut self, message: &str) {
        self.write(format!("{message}\n").as_bytes());
    }

    fn answer(&mut self, text: &str) {
        let Some(message) = Message::parse(text.as_bytes()) else {
            return;
        };
        let (Some(method), Some(id)) = (message.method, message.id) else {
            return;
        };
        let (id, params) = (id.get(), message.params.map_or("{}", |params| params.get()));
        let result = match method.as_str() {
            "initialize" => {
                let version = member(params, "protocolVersion").unwrap_or("\"2025-11-25\"");
                let version = if version < "\"2026" { version } else { "\"2025-11-25\"" };
                format!(
                    r#"{{"protocolVersion":{version},"capabilities":{{"tools":{{"listChanged":true}},"logging":{{}}}},"serverInfo":{{"name":"stdio-backend","version":"1"}}}}"#
                )
            }
            "tools/list" => tools(),
            "ping" | "logging/setLevel" => "{}".to_owned(),
            "tools/call" => match self.call(id, params) {
                Some(result) => result,
                None => return,
            },
            _ => return self.send(&raw::error(id, -32601, "Method not found")),
        };
        self.send(&raw::result(id, &result));
    }

    fn call(&mut self, id: &str, params: &str) -> Option<String> {
        let arguments = member(params, "arguments").unwrap_or("{}");
        let text = match member(params, "name")?.trim_matches('"') {
            "echo" => {
                return Some(format!(r#"{{"content":[],"structuredContent":{arguments}}}"#));
            }
            "pid" => std::process::id().to_string(),
            "env" => {
                let name: String = member(arguments, "name").and_then(|name| serde_json::from_str(name).ok())?;
                std::env::var(name).unwrap_or_else(|_| "(not set)".to_owned())
            }
            "cwd" => std::env::current_dir().ok()?.display().to_string(),
            "garbage" => {
                self.write(b"a line of text\n{\"half\":\n\xff\xfe\xfd\n\n42\n\"text\"\n[]\n{\"jsonrpc\":\"2.0\"}\n");
                "after garbage".to_owned()
            }
            "flood" => {
                for _ in 0..4096 {
                    let _ = std::io::stderr().write_all("y".repeat(1023).as_bytes());
                    let _ = std::io::stderr().write_all(b"\n");
                }
                "flooded".to_owned()
            }
            "crash" => {
                self.note("exit");
                std::process::exit(3);
            }
            "hang" => return None,
            "progress" => {
                let token = member(params, "_meta").and_then(|meta| member(meta, "progressToken"));
                for step in 1..=3 {
                    if let Some(token) = token {
                        let params = format!(r#"{{"progressToken":{token},"progress":{step},"total":3}}"#);
                        self.send(&raw::notification("notifications/progress", &params));
                    }
                }
                "done".to_owned()
            }
            "ask" => {
                let params = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}"#;
                self.send(&raw::request(r#""ask-1""#, "elicitation/create", params));
                loop {
                    let text = self.read()?;
                    let message = Message::parse(text.as_bytes())?;
                    match (message.id, message.result, message.error) {
                        (Some(reply), Some(result), _) if reply.get() == r#""ask-1""# => {
                            return Some(format!(r#"{{"content":[],"structuredContent":{}}}"#, result.get()));
                        }
                        (Some(reply), _, Some(error)) if reply.get() == r#""ask-1""# => {
                            return Some(format!(r#"{{"content":[],"isError":true,"structuredContent":{}}}"#, error.get()));
                        }
                        _ => self.answer(&text),
                    }
                }
            }
            "chatter" => {
                let number = |name| member(arguments, name).and_then(|n| n.parse::<usize>().ok());
                let fill = "c".repeat(number("bytes")?);
                for _ in 0..number("count")? {
                    self.send(&raw::notification("notifications/message", &format!(r#"{{"level":"info","data":"{fill}"}}"#)));
                }
                "said".to_owned()
            }
            "big" => "z".repeat(member(arguments, "bytes")?.parse().ok()?),
            _ => {
                self.send(&raw::error(id, -32602, "Unknown tool"));
                return None;
            }
        };
        let text = serde_json::to_string(&text).ok()?;
        Some(format!(r#"{{"content":[{{"type":"text","text":{text}}}]}}"#))
    }
}

fn tools() -> String {
    let names = ["echo", "pid", "env", "cwd", "garbage", "flood", "crash", "hang", "progress", "ask", "chatter", "big"];
    let tools = names.map(|name| format!(r#"{{"name":"{name}","description":"Scripted: {name}","inputSchema":{{"type":"object"}}}}"#));
    format!(r#"{{"tools":[{}]}}"#, tools.join(","))
}
