//! What the `text` server does to text, as plain functions. Pure, and bounded by the size of their arguments except where
//! a constant says otherwise.

use std::collections::HashMap;

/// Lines on either side that [`line_diff`] compares. Its time and memory grow with their product.
pub const MAX_DIFF_LINES: usize = 1_000;

/// Words of a text: runs of characters without whitespace that have at least one letter or digit.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric))
}

/// The text in lower case ASCII letters, digits and single hyphens, fit for a file name or a URL; at most `max_length` bytes,
/// cut at a word where one ends early enough. Accents of Latin letters are dropped, other scripts are left out.
pub fn slugify(text: &str, max_length: usize) -> String {
    let mut slug = String::new();
    for character in text.chars().flat_map(char::to_lowercase) {
        match character {
            'a'..='z' | '0'..='9' => slug.push(character),
            '\'' | '’' => {}
            other => match plain(other) {
                Some(letters) => slug.push_str(letters),
                None if slug.is_empty() || slug.ends_with('-') => {}
                None => slug.push('-'),
            },
        }
    }
    if slug.len() > max_length {
        let whole_words = slug.as_bytes()[max_length] == b'-';
        slug.truncate(max_length);
        if !whole_words && let Some(end) = slug.rfind('-') {
            slug.truncate(end);
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

/// The ASCII letters for a lower case Latin letter with an accent.
fn plain(character: char) -> Option<&'static str> {
    Some(match character {
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'č' => "c",
        'ď' | 'đ' | 'ð' => "d",
        'è'..='ë' | 'ē' | 'ę' | 'ě' => "e",
        'ğ' => "g",
        'ì'..='ï' | 'ī' | 'ı' => "i",
        'ł' | 'ľ' => "l",
        'ñ' | 'ń' | 'ň' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ő' => "o",
        'œ' => "oe",
        'ř' => "r",
        'ś' | 'š' | 'ş' => "s",
        'ß' => "ss",
        'ť' => "t",
        'þ' => "th",
        'ù'..='ü' | 'ū' | 'ů' | 'ű' => "u",
        'ý' | 'ÿ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        // A combining accent after its letter.
        '\u{300}'..='\u{36f}' => "",
        _ => return None,
    })
}

/// The most frequent words in lower case, without punctuation at their ends; ties in alphabetical order.
pub fn most_frequent(text: &str, count: usize) -> Vec<(String, usize)> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for word in words(text) {
        let word = word.trim_matches(|character: char| !character.is_alphanumeric()).to_lowercase();
        *counts.entry(word).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then_with(|| a.cmp(b)));
    counts.truncate(count);
    counts
}

/// The text in at most `parts` pieces of about the same number of lines, none of them empty unless the text is.
pub fn pieces(text: &str, parts: usize) -> Vec<&str> {
    let lines = text.split_inclusive('\n').count();
    let per_piece = lines.div_ceil(parts.max(1)).max(1);
    let (mut pieces, mut start, mut taken) = (Vec::new(), 0, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        taken += line.len();
        if (index + 1) % per_piece == 0 || index + 1 == lines {
            pieces.push(&text[start..taken]);
            start = taken;
        }
    }
    if pieces.is_empty() {
        pieces.push(text);
    }
    pieces
}

/// What it takes to turn one text into another, line by line.
#[derive(Debug, PartialEq, Eq)]
pub struct LineDiff {
    pub added: usize,
    pub removed: usize,
    /// Every line of both, with `+`, `-` or a space in front; without a newline at the end.
    pub text: String,
}

/// Compares two texts by their longest common subsequence of lines.
///
/// # Errors
///
/// When either has more than [`MAX_DIFF_LINES`] lines.
pub fn line_diff(before: &str, after: &str) -> Result<LineDiff, String> {
    let before: Vec<&str> = before.lines().collect();
    let after: Vec<&str> = after.lines().collect();
    let lines = before.len().max(after.len());
    if lines > MAX_DIFF_LINES {
        return Err(format!("{lines} lines are too many to compare; at most {MAX_DIFF_LINES}"));
    }
    // common[i * width + j]: the length of the longest common subsequence of before[i..] and after[j..].
    let width = after.len() + 1;
    let mut common = vec![0_u16; (before.len() + 1) * width];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            common[i * width + j] = if before[i] == after[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let (mut added, mut removed) = (0, 0);
    let mut out: Vec<String> = Vec::with_capacity(lines);
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            out.push(format!(" {}", before[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || (i < before.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            out.push(format!("-{}", before[i]));
            (i, removed) = (i + 1, removed + 1);
        } else {
            out.push(format!("+{}", after[j]));
            (j, added) = (j + 1, added + 1);
        }
    }
    Ok(LineDiff { added, removed, text: out.join("\n") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_needs_a_letter_or_a_digit() {
        assert_eq!(words("  one, two — 3!\n...\tvier ").count(), 4);
        assert_eq!(words("").count(), 0);
    }

    #[test]
    fn a_slug_has_only_lower_case_letters_digits_and_single_hyphens() {
        assert_eq!(slugify("  Hello, World!  It's 5 o’clock. ", 80), "hello-world-its-5-oclock");
        assert_eq!(slugify("Ça va? Straße & Smørrebrød", 80), "ca-va-strasse-smorrebrod");
        assert_eq!(slugify("Zu\u{308}rich", 80), "zurich");
        assert_eq!(slugify("日本 — 2026", 80), "2026");
        assert_eq!(slugify("—", 80), "");
    }

    #[test]
    fn a_long_slug_is_cut_between_words_where_it_can_be() {
        assert_eq!(slugify("the lock opens slowly", 14), "the-lock-opens");
        assert_eq!(slugify("the lock opens slowly", 13), "the-lock");
        assert_eq!(slugify("the lock opens slowly", 9), "the-lock");
        assert_eq!(slugify("thelockopens", 5), "thelo");
        assert_eq!(slugify("anything", 0), "");
    }

    #[test]
    fn the_most_frequent_words_come_first_and_ties_in_alphabetical_order() {
        let found = most_frequent("The gate, the lock. \"The\" gate! A lock?", 3);
        let expected = [("the", 3), ("gate", 2), ("lock", 2)];
        assert_eq!(found, expected.map(|(word, count)| (word.to_owned(), count)));
    }

    #[test]
    fn the_pieces_of_a_text_are_the_text() {
        for (text, parts, expected) in
            [("a\nb\nc\nd\ne", 2, vec!["a\nb\nc\n", "d\ne"]), ("a\nb", 5, vec!["a\n", "b"]), ("a", 0, vec!["a"]), ("", 3, vec![""])]
        {
            assert_eq!(pieces(text, parts), expected);
        }
    }

    #[test]
    fn a_diff_keeps_what_is_common_and_counts_the_rest() {
        let diff = line_diff("one\ntwo\nthree\n", "one\n2\nthree\nfour").expect("short enough");
        assert_eq!(diff.text, " one\n-two\n+2\n three\n+four");
        assert_eq!((diff.added, diff.removed), (2, 1));
        let same = line_diff("x\ny", "x\ny").expect("short enough");
        assert_eq!((same.added, same.removed), (0, 0));
        assert_eq!(line_diff("", "").expect("short enough").text, "");
        assert_eq!(line_diff("a", "").expect("short enough").text, "-a");
    }

    #[test]
    fn texts_with_too_many_lines_are_not_compared() {
        let long = "x\n".repeat(MAX_DIFF_LINES + 1);
        assert!(line_diff("", &long).expect_err("too long").contains("1001"));
        assert!(line_diff(&long[2..], &long[2..]).is_ok());
    }
}
