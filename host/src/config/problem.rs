//! What is wrong with a configuration, where, and what to do: the words a user sees.
//!
//! A [`Problem`] is one line, `lockgate.yaml:12:5: backends.time.urll: unknown key; did you mean `url`?`. A load reports
//! all of them at once ([`Problems`]), in the order of the files. No message carries a secret or a value of the environment.

use std::fmt;
use std::sync::Arc;

use super::source::tree::Mark;

/// Where: a file with line, column and key, or the name of a command-line flag or environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    source: Arc<str>,
    mark: Option<Mark>,
    key: String,
}

/// One thing to repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    pub message: String,
}

/// Everything that is wrong, never empty as an error. `Display` prints a line for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

// === impl Place ===

impl Place {
    pub(super) fn in_file(source: Arc<str>, mark: Mark, key: String) -> Self {
        Place { source, mark: Some(mark), key }
    }

    /// A place without lines: a flag (`--listen`), an environment variable, or a file that could not be read.
    pub fn named(source: impl Into<Arc<str>>) -> Self {
        Place { source: source.into(), mark: None, key: String::new() }
    }

    fn order(&self) -> (u32, u32) {
        self.mark.map_or((0, 0), |m| (m.line, m.column))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if let Some(mark) = self.mark {
            write!(f, ":{}:{}", mark.line, mark.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        Ok(())
    }
}

// === impl Problem ===

impl Problem {
    pub fn new(place: Place, message: impl Into<String>) -> Self {
        Problem { place, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

// === impl Problems ===

impl Problems {
    pub fn push(&mut self, problem: Problem) {
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Orders by source (in order of first appearance), then by line and column.
    pub(super) fn sort(&mut self) {
        let mut sources: Vec<Arc<str>> = Vec::new();
        for problem in &self.0 {
            if !sources.contains(&problem.place.source) {
                sources.push(problem.place.source.clone());
            }
        }
        let rank = |p: &Problem| sources.iter().position(|s| *s == p.place.source);
        self.0.sort_by_key(|p| (rank(p), p.place.order()));
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Problems(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The candidate that `word` was probably meant to be: the nearest, if few enough letters differ.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    candidates
        .into_iter()
        .map(|candidate| (distance(&folded, &fold(candidate)), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count() / 4)
        .map(|(_, candidate)| candidate)
}

/// ``did you mean `x`?`` or else the list of what there is.
pub(super) fn suggest(word: &str, candidates: &[&str]) -> String {
    match nearest(word, candidates.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if candidates.is_empty() => "there is none to name".to_owned(),
        None => format!("known here: {}", candidates.join(", ")),
    }
}

fn fold(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect()
}

/// Edit distance with neighbours swapped counted as one (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let swap = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + swap);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}
