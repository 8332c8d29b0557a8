//! Dates and times on the proleptic Gregorian calendar, in whole seconds, at fixed UTC offsets: what the `time` server needs
//! of a calendar and no more. No time zones, no leap seconds, years 0001 to 9999. Pure; never asks for the current time.

use std::{fmt, str::FromStr};

const SECONDS_PER_DAY: i64 = 86_400;
/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A point in time: seconds since 1970-01-01T00:00:00Z, within the years 0001 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

impl Moment {
    /// The moment `seconds` after 1970-01-01T00:00:00Z; `None` outside the years 0001 to 9999.
    pub fn from_unix(seconds: i64) -> Option<Self> {
        RANGE.contains(&seconds).then_some(Self(seconds))
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    pub fn unix(self) -> i64 {
        self.0
    }

    /// This moment as clocks show it that are `offset` from UTC.
    pub fn at(self, offset: Offset) -> Civil {
        let local = self.0 + i64::from(offset.0) * 60;
        let days = local.div_euclid(SECONDS_PER_DAY);
        let second_of_day = local.rem_euclid(SECONDS_PER_DAY);
        let (year, month, day) = date_of(days);
        Civil { days, year, month, day, second_of_day, offset }
    }
}

/// A difference from UTC in whole minutes, less than a day either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset(i32);

impl Offset {
    pub const UTC: Self = Self(0);
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("Z");
        }
        let sign = if self.0 < 0 { '-' } else { '+' };
        let minutes = self.0.abs();
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

impl FromStr for Offset {
    type Err = String;

    /// Reads `Z`, `UTC`, `+02:00`, `-0530` and `+2`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a UTC offset; write it as +02:00, -05:30 or Z");
        if text.eq_ignore_ascii_case("z") || text.eq_ignore_ascii_case("utc") {
            return Ok(Self::UTC);
        }
        let (sign, rest) = match text.as_bytes().first() {
            Some(b'+') => (1, &text[1..]),
            Some(b'-') => (-1, &text[1..]),
            _ => return Err(wrong()),
        };
        let (hours, minutes) = match (rest.split_once(':'), rest.len()) {
            (Some((hours, minutes)), _) if minutes.len() == 2 => (hours, minutes),
            (None, 1 | 2) => (rest, "0"),
            (None, 4) if rest.is_ascii() => rest.split_at(2),
            _ => return Err(wrong()),
        };
        let hours: i32 = digits(hours).ok_or_else(wrong)?;
        let minutes: i32 = digits(minutes).ok_or_else(wrong)?;
        if hours > 23 || minutes > 59 {
            return Err(wrong());
        }
        Ok(Self(sign * (hours * 60 + minutes)))
    }
}

/// A moment as a clock and a calendar show it at one offset. Displays as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// Local days since 1970-01-01.
    days: i64,
    pub year: i64,
    pub month: i64,
    pub day: i64,
    second_of_day: i64,
    offset: Offset,
}

impl Civil {
    /// The English name of the day of the week.
    pub fn weekday(&self) -> &'static str {
        const NAMES: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
        NAMES[self.weekday_from_monday() as usize]
    }

    /// 1 for the first of January.
    pub fn day_of_year(&self) -> i64 {
        self.days - days_of(self.year, 1, 1) + 1
    }

    /// The week of ISO 8601, 1 to 53: weeks begin on Monday and belong to the year that has their Thursday.
    pub fn iso_week(&self) -> i64 {
        let thursday = self.days - self.weekday_from_monday() + 3;
        let (year, _, _) = date_of(thursday);
        (thursday - days_of(year, 1, 1)) / 7 + 1
    }

    fn weekday_from_monday(&self) -> i64 {
        // 1970-01-01 was a Thursday.
        (self.days + 3).rem_euclid(7)
    }
}

impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, second_of_day: s, offset, .. } = self;
        let (hour, minute, second) = (s / 3600, s / 60 % 60, s % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{offset}")
    }
}

/// Reads an RFC 3339 date and time with its offset, or a date alone (midnight UTC). Fractions of a second are dropped.
pub fn parse(text: &str) -> Result<(Moment, Offset), String> {
    let wrong = || format!("'{text}' is not a date and time of RFC 3339, such as 2026-02-28T13:45:00+02:00");
    let (date, clock) = match text.split_once(['T', 't', ' ']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let [year, month, day] = fields(date, '-', [4, 2, 2]).ok_or_else(wrong)?;
    if year == 0 || !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return Err(format!("'{date}' is not a date that exists"));
    }
    let (second_of_day, offset) = match clock {
        None => (0, Offset::UTC),
        Some(clock) => {
            let at =
                clock.find(['Z', 'z', '+', '-']).ok_or_else(|| format!("'{text}' has no UTC offset; append one, such as Z or +02:00"))?;
            let (clock, offset) = clock.split_at(at);
            let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
            let [hour, minute, second] = fields(clock, ':', [2, 2, 2]).ok_or_else(wrong)?;
            if hour > 23 || minute > 59 || second > 59 || !all_digits(fraction) {
                return Err(wrong());
            }
            (hour * 3600 + minute * 60 + second, offset.parse()?)
        }
    };
    let local = days_of(year, month, day) * SECONDS_PER_DAY + second_of_day;
    let moment = Moment::from_unix(local - i64::from(offset.0) * 60).ok_or_else(wrong)?;
    Ok((moment, offset))
}

fn fields(text: &str, separator: char, lengths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut values = [0; 3];
    for (value, length) in values.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == length)?;
        *value = digits(part)?;
    }
    parts.next().is_none().then_some(values)
}

fn digits<N: FromStr>(text: &str) -> Option<N> {
    all_digits(text).then(|| text.parse().ok()).flatten()
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date. Counts from the first of March, so that the leap day is the last of its year.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date so many days after 1970-01-01: the inverse of [`days_of`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str, offset: &str) -> String {
        let (moment, _) = parse(text).expect(text);
        moment.at(offset.parse().expect(offset)).to_string()
    }

    #[test]
    fn every_day_from_the_year_1_to_9999_survives_the_round_trip() {
        let first = days_of(1, 1, 1);
        let last = days_of(9999, 12, 31);
        assert_eq!((first * 86_400, last * 86_400 + 86_399), (*RANGE.start(), *RANGE.end()));
        let mut expected = (1, 1, 1);
        for days in first..=last {
            assert_eq!(date_of(days), expected);
            let (y, m, d) = expected;
            assert_eq!(days_of(y, m, d), days);
            expected = if d < days_in_month(y, m) {
                (y, m, d + 1)
            } else if m < 12 {
                (y, m + 1, 1)
            } else {
                (y + 1, 1, 1)
            };
        }
    }

    #[test]
    fn a_moment_is_shown_at_the_offset_asked_for_across_midnight_and_new_year() {
        assert_eq!(show("2026-12-31T23:30:00Z", "+02:00"), "2027-01-01T01:30:00+02:00");
        assert_eq!(show("2027-01-01T01:30:00+02:00", "utc"), "2026-12-31T23:30:00Z");
        assert_eq!(show("2024-03-01T00:10:00Z", "-0530"), "2024-02-29T18:40:00-05:30");
        assert_eq!(show("1969-12-31T23:59:59.75Z", "+2"), "1970-01-01T01:59:59+02:00");
        assert_eq!(show("2026-02-28", "Z"), "2026-02-28T00:00:00Z");
    }

    #[test]
    fn weekday_week_and_day_of_year_agree_with_the_calendar() {
        let facts = |text: &str| {
            let civil = parse(text).expect(text).0.at(Offset::UTC);
            (civil.weekday(), civil.iso_week(), civil.day_of_year())
        };
        assert_eq!(facts("1970-01-01"), ("Thursday", 1, 1));
        assert_eq!(facts("2024-12-31"), ("Tuesday", 1, 366));
        assert_eq!(facts("2027-01-01"), ("Friday", 53, 1));
        assert_eq!(facts("2026-11-29"), ("Sunday", 48, 333));
        assert_eq!(facts("0001-01-01"), ("Monday", 1, 1));
    }

    #[test]
    fn what_is_not_a_date_is_refused_with_the_reason() {
        for (text, reason) in [
            ("2026-02-29", "exists"),
            ("2026-13-01T00:00:00Z", "exists"),
            ("2026-01-01T24:00:00Z", "RFC 3339"),
            ("2026-01-01T10:00:00", "no UTC offset"),
            ("2026-01-01T10:00:00+24:00", "not a UTC offset"),
            ("0001-01-01T00:00:00+01:00", "RFC 3339"),
            ("26-1-1", "RFC 3339"),
            ("", "RFC 3339"),
            ("2026-01-0é", "RFC 3339"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
        for text in ["", "2", "+", "+é1:00", "+1:0", "+123", "+ab:cd", "+24", "--1"] {
            assert!(text.parse::<Offset>().is_err(), "{text}");
        }
    }
}
