//! The parts of JSON text that can be cut anywhere: numbers, nesting, characters.

use super::Invalid;

/// Levels of nesting. Whole messages may have more.
pub const DEPTH: usize = 1 << 20;

/// What of a number has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl Digits {
    /// With `byte` behind it; none where the number ends before it.
    pub fn and(self, byte: u8) -> Result<Option<Digits>, Invalid> {
        Ok(Some(match (self, byte) {
            (Digits::Minus, b'0') => Digits::Zero,
            (Digits::Minus, b'1'..=b'9') | (Digits::Whole, b'0'..=b'9') => Digits::Whole,
            (Digits::Zero | Digits::Whole, b'.') => Digits::Point,
            (Digits::Point | Digits::Fraction, b'0'..=b'9') => Digits::Fraction,
            (Digits::Zero | Digits::Whole | Digits::Fraction, b'e' | b'E') => Digits::Exponent,
            (Digits::Exponent, b'+' | b'-') => Digits::Sign,
            (Digits::Exponent | Digits::Sign | Digits::Power, b'0'..=b'9') => Digits::Power,
            (Digits::Zero, b'0'..=b'9') => return Err(Invalid("not valid JSON")),
            (Digits::Zero | Digits::Whole | Digits::Fraction | Digits::Power, _) => return Ok(None),
            _ => return Err(Invalid("not valid JSON")),
        }))
    }
}

// === impl Nesting ===

/// The containers that are open, a bit each: whether it is an object.
#[derive(Debug, Default)]
pub struct Nesting {
    bits: Vec<u64>,
    pub depth: usize,
}

impl Nesting {
    pub fn push(&mut self, object: bool) -> Result<(), Invalid> {
        if self.depth == DEPTH {
            return Err(Invalid("it is nested too deeply"));
        }
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.bits.len() {
            self.bits.push(0);
        }
        self.bits[word] = self.bits[word] & !(1 << bit) | u64::from(object) << bit;
        self.depth += 1;
        Ok(())
    }

    /// False where another one, or none, is open.
    pub fn pop(&mut self, object: bool) -> bool {
        let fits = self.depth > 0 && self.in_object() == object;
        self.depth -= usize::from(fits);
        fits
    }

    pub fn in_object(&self) -> bool {
        self.depth.checked_sub(1).is_some_and(|at| self.bits[at / 64] >> (at % 64) & 1 == 1)
    }
}

// === impl Utf8 ===

/// A character that is not whole yet.
#[derive(Debug, Default)]
pub struct Utf8 {
    part: [u8; 4],
    len: usize,
}

impl Utf8 {
    pub fn push(&mut self, mut text: &[u8]) -> Result<(), Invalid> {
        const NO_TEXT: Invalid = Invalid("it is not UTF-8");
        while self.len > 0 {
            let Some((first, rest)) = text.split_first() else { return Ok(()) };
            text = rest;
            self.part[self.len] = *first;
            self.len += 1;
            match std::str::from_utf8(&self.part[..self.len]) {
                Ok(_) => self.len = 0,
                // Of four bytes none can be missing.
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(NO_TEXT),
            }
        }
        match std::str::from_utf8(text) {
            Ok(_) => {}
            Err(error) if error.error_len().is_none() => {
                let tail = &text[error.valid_up_to()..];
                self.len = tail.len();
                self.part[..tail.len()].copy_from_slice(tail);
            }
            Err(_) => return Err(NO_TEXT),
        }
        Ok(())
    }

    pub fn is_whole(&self) -> bool {
        self.len == 0
    }
}
