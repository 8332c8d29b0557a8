//! What the demo prints, with and without colour: one place that knows escape sequences and widths. Printing is best effort; a
//! closed pipe ends nothing.

use std::io::{self, Write as _};

/// Columns that a line may take.
pub const WIDTH: usize = 100;
/// Where the text of a step begins: after the mark and the title.
const TEXT: usize = 20;

/// A page with or without colour.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    colour: bool,
}

impl Page {
    /// Colour only on a terminal, unless NO_COLOR is set (<https://no-color.org>) or the terminal is dumb.
    pub fn new(terminal: bool) -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        Self { colour: terminal && !dumb && set("NO_COLOR").is_none() }
    }

    /// Prints text that is already laid out.
    pub fn print(&self, text: &str) {
        let mut out = io::stdout().lock();
        // Whoever reads may have gone away; the demo's outcome is its exit code.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    pub fn strong(&self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub fn faint(&self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// A line that stands out without being an error.
    pub fn note(&self, text: &str) -> String {
        format!("  {} {text}\n", self.wrap("33", "note:"))
    }

    /// A step that went as it should: mark, title, and lines broken to the width.
    pub fn done(&self, title: &str, text: &str) -> String {
        self.step(&self.wrap("32", "ok"), title, text)
    }

    /// A step that did not: what was expected, and what came instead.
    pub fn failed(&self, title: &str, expected: &str, came: &str) -> String {
        let text = format!("expected: {expected}\ncame:     {came}");
        self.step(&self.wrap("31;1", "no"), title, &text)
    }

    fn step(&self, mark: &str, title: &str, text: &str) -> String {
        let mut out = String::new();
        for (index, line) in text.lines().flat_map(|line| broken(line, WIDTH - TEXT)).enumerate() {
            match index {
                0 => out.push_str(&format!("{mark}  {} ", self.strong(&format!("{title:<15}")))),
                _ => out.push_str(&" ".repeat(TEXT)),
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    fn wrap(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A line broken at spaces so that no part is wider than `width`, except for a word that alone is.
fn broken(line: &str, width: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut taken = 0;
    for word in line.split(' ') {
        let length = word.chars().count();
        if taken > 0 && taken + 1 + length > width {
            parts.push(String::new());
            taken = 0;
        }
        if let Some(part) = parts.last_mut() {
            if taken > 0 {
                part.push(' ');
                taken += 1;
            }
            part.push_str(word);
            taken += length;
        }
    }
    parts
}

/// At most so many characters of a text, on one line, for a place where all of it would be too much.
pub fn shortened(text: &str, most: usize) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Page = Page { colour: false };

    #[test]
    fn a_step_is_broken_at_words_within_the_width_and_aligned() {
        let text = PLAIN.done("One list", &["word"; 40].join(" "));
        assert!(text.lines().count() > 1);
        for (index, line) in text.lines().enumerate() {
            assert!(line.len() <= WIDTH, "{line}");
            assert_eq!(line.find("word"), Some(TEXT), "{line}");
            assert_eq!(line.starts_with("ok  One list"), index == 0);
        }
    }

    #[test]
    fn without_colour_there_are_no_escapes_and_with_it_the_text_is_the_same() {
        let (plain, colour) = (PLAIN, Page { colour: true });
        let steps = |page: Page| page.failed("A call", "4", "5") + &page.note("x") + &page.faint("y");
        let mut stripped = steps(colour);
        assert!(!steps(plain).contains('\x1b'));
        while let Some(start) = stripped.find('\x1b') {
            let end = start + stripped[start..].find('m').expect("an escape ends");
            stripped.replace_range(start..=end, "");
        }
        assert_eq!(stripped, steps(plain));
    }

    #[test]
    fn a_long_answer_is_shortened_to_one_line() {
        assert_eq!(shortened("a\n  b", 10), "a b");
        assert_eq!(shortened("abcdef", 4), "abc…");
        assert_eq!(shortened("abcd", 4), "abcd");
    }
}
