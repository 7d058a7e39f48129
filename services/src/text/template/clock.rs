//! `strftime_now` of templates: the present time in the form that a format asks for. Times are UTC's, because a server
//! answers people of many places.

use crate::clock::{date, days_since_1970};
use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Bytes of the longest format that is taken.
pub(super) const FORMAT_BYTES_MAX: usize = 256;

/// A time, taken apart.
struct Moment {
    year: u64,
    /// From 1 on, as the day and the day of the year.
    month: u64,
    day: u64,
    /// From Sunday, which is 0.
    weekday: usize,
    day_of_year: u64,
    second_of_day: u64,
}

impl Moment {
    fn of(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = date(days);
        let day_of_year = 1 + days - days_since_1970(year, 1, 1).unwrap_or(days);
        // The first of 1970 was a Thursday.
        Self { year, month, day, weekday: ((days + 4) % 7) as usize, day_of_year, second_of_day }
    }

    /// What a directive stands for.
    fn directive(&self, letter: char) -> Option<String> {
        let (hour, minute, second) = (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60);
        let (weekday, month) = (DAYS[self.weekday], MONTHS[self.month as usize - 1]);
        let (day, hour_of_12) = (self.day, (hour + 11) % 12 + 1);
        Some(match letter {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'B' => month.into(),
            'b' | 'h' => month[..3].into(),
            'd' => format!("{day:02}"),
            'e' => format!("{day:2}"),
            'j' => format!("{:03}", self.day_of_year),
            'A' => weekday.into(),
            'a' => weekday[..3].into(),
            'w' => self.weekday.to_string(),
            'u' => ((self.weekday + 6) % 7 + 1).to_string(),
            'H' => format!("{hour:02}"),
            'I' => format!("{hour_of_12:02}"),
            'p' => if hour < 12 { "AM" } else { "PM" }.into(),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'F' => format!("{}-{:02}-{day:02}", self.year, self.month),
            'D' | 'x' => format!("{:02}/{day:02}/{:02}", self.month, self.year % 100),
            'T' | 'X' => format!("{hour:02}:{minute:02}:{second:02}"),
            'R' => format!("{hour:02}:{minute:02}"),
            'c' => format!("{} {} {day:2} {hour:02}:{minute:02}:{second:02} {}", &weekday[..3], &month[..3], self.year),
            'f' => "000000".into(),
            'Z' | 'z' => String::new(),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            _ => return None,
        })
    }
}

/// A time as a format writes it. A directive that is not known stays as it is, as in C.
pub(super) fn strftime(time: SystemTime, format: &str) -> String {
    let moment = Moment::of(time);
    let (mut out, mut chars) = (String::new(), format.chars());
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut letter = chars.next();
        // `%-d` leaves the filling away.
        let bare = letter == Some('-');
        if bare {
            letter = chars.next();
        }
        match (letter, letter.and_then(|letter| moment.directive(letter))) {
            (_, Some(text)) if bare => {
                let trimmed = text.trim_start_matches(['0', ' ']);
                out.push_str(if trimmed.is_empty() { "0" } else { trimmed });
            }
            (_, Some(text)) => out.push_str(&text),
            (letter, None) => {
                out.push_str(if bare { "%-" } else { "%" });
                out.extend(letter);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_python_writes_them() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for (seconds, format, text) in [
            (0, "%Y-%m-%d %H:%M:%S %a %j", "1970-01-01 00:00:00 Thu 001"),
            (951_782_400, "%d %B %Y, %A", "29 February 2000, Tuesday"),
            (1_735_689_599, "%d %b %y %I:%M %p %j %w", "31 Dec 24 11:59 PM 366 2"),
            (1_769_904_000, "%-d/%-m/%e|%%|%Q|%", "1/2/ 1|%|%Q|%"),
            (4_107_542_400, "%F %T", "2100-03-01 00:00:00"),
        ] {
            assert_eq!(strftime(at(seconds), format), text);
        }
    }
}
