//! JSON numbers as they are written, compared by what they mean: exactly, of any size.

use std::fmt::Write as _;

/// A decimal number: `digits` × 10^`exponent`, without zeros at either end of the digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    digits: String,
    exponent: i64,
}

/// Zeros that are written out.
const ZEROS: i64 = 32;

impl Number {
    /// Reads what JSON allows as a number, and nothing else (RFC 8259, section 6).
    pub fn parse(text: &str) -> Option<Number> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, power) = match rest.split_once(['e', 'E']) {
            Some((mantissa, power)) => {
                let sign = power.strip_prefix(['+', '-']).unwrap_or(power);
                if sign.is_empty() || !sign.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                (mantissa, power.strip_prefix('+').unwrap_or(power).parse::<i32>().ok()?)
            }
            None => (rest, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let decimal = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !decimal(whole) || !decimal(fraction) || whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        let all = format!("{whole}{fraction}");
        let digits = all.trim_end_matches('0');
        let zeros = i64::try_from(all.len() - digits.len()).ok()?;
        let exponent = i64::from(power) - i64::try_from(fraction.len()).ok()? + zeros;
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() {
            return Some(Number { negative: false, digits: String::new(), exponent: 0 });
        }
        Some(Number { negative, digits: digits.to_owned(), exponent })
    }

    /// The number as an integer in plain decimal digits, where it is one that is not much longer than it was written.
    pub fn integer(&self) -> Option<String> {
        if self.digits.is_empty() {
            return Some("0".to_owned());
        }
        let zeros = usize::try_from(self.exponent).ok().filter(|_| self.exponent <= ZEROS)?;
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{}{}{}", if self.negative { "-" } else { "" }, self.digits, "0".repeat(zeros));
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_by_what_they_mean() {
        let of = |text: &str| Number::parse(text).unwrap_or_else(|| panic!("{text}"));
        for same in
            [&["42", "42.0", "4.2e1", "420E-1", "42.000"][..], &["0", "-0", "0.0", "0e9"], &["-7", "-7.0"], &["1000", "1e3", "1E+3"]]
        {
            for text in same {
                assert_eq!(of(text), of(same[0]), "{text}");
            }
        }
        assert_ne!(of("9007199254740993"), of("9007199254740992"));
        assert_ne!(of("1"), of("-1"));
        for bad in ["", "-", "+1", "01", "1.", ".5", "0x1", "1e", "1e+", " 1", "1 ", "NaN", "1_000", "1e99999999999"] {
            assert!(Number::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn integers_are_written_in_plain_digits() {
        for (text, want) in
            [("42.0", Some("42")), ("-7", Some("-7")), ("1e3", Some("1000")), ("0.0", Some("0")), ("1.5", None), ("1e99", None)]
        {
            assert_eq!(Number::parse(text).unwrap().integer().as_deref(), want, "{text}");
        }
        assert_eq!(Number::parse("123456789012345678901234567890").unwrap().integer().unwrap(), "123456789012345678901234567890");
    }
}
