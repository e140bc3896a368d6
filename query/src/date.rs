//! Dates and times of day, in UTC.

/// A calendar date and a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    /// The year.
    pub year: i64,
    /// Month of the year, from 1.
    pub month: i64,
    /// Day of the month, from 1.
    pub day: i64,
    /// Day of the year, from 1.
    pub year_day: i64,
    /// Day of the week, from 0 (Sunday).
    pub weekday: i64,
    /// Hour of the day.
    pub hour: i64,
    /// Minute of the hour.
    pub minute: i64,
    /// Second of the minute.
    pub second: i64,
}

const DAY_SECONDS: i64 = 86_400;
/// Number of days in 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Number of eras from the start of Go's calendar to the year 0. Earlier times wrap around to the
/// end of the calendar, as in Go. `i64::MIN`, to which NaN and infinities convert, wraps
/// around, too.
const ERAS_BEFORE_YEAR_0: i64 = 730_692_556;
/// Number of days from the first day of the calendar (Wednesday, 1 March) to 1 January 1970.
const EPOCH_DAYS: i64 = 719_468 + ERAS_BEFORE_YEAR_0 * ERA_DAYS;
const WEDNESDAY: i64 = 3;

impl Civil {
    /// Converts seconds since the Unix epoch to the proleptic Gregorian calendar.
    #[must_use]
    pub fn of_seconds(seconds: i64) -> Self {
        let since_first = seconds
            .wrapping_add(EPOCH_DAYS * DAY_SECONDS)
            .cast_unsigned();
        let [days, second_of_day] = [
            since_first / DAY_SECONDS as u64,
            since_first % DAY_SECONDS as u64,
        ]
        .map(|n| n as i64);
        // Years are counted from March, so that a leap day is the last day of its year.
        let era = days / ERA_DAYS - ERAS_BEFORE_YEAR_0;
        let day_of_era = days % ERA_DAYS;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_march_year =
            day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_march_year + 2) / 153;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let day = day_of_march_year - (153 * march_month + 2) / 5 + 1;
        let before_month: i64 = (1..month).map(|month| month_days(year, month)).sum();
        Self {
            year,
            month,
            day,
            year_day: before_month + day,
            weekday: (days + WEDNESDAY) % 7,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }

    /// Returns the number of days of the month.
    #[must_use]
    pub fn days_in_month(&self) -> i64 {
        month_days(self.year, self.month)
    }
}

fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_converted_to_dates() {
        let check = |seconds, date, time, weekday, year_day| {
            let civil = Civil::of_seconds(seconds);
            assert_eq!((civil.year, civil.month, civil.day), date, "{seconds}");
            assert_eq!((civil.hour, civil.minute, civil.second), time, "{seconds}");
            assert_eq!(
                (civil.weekday, civil.year_day),
                (weekday, year_day),
                "{seconds}"
            );
        };
        check(0, (1970, 1, 1), (0, 0, 0), 4, 1);
        check(-1, (1969, 12, 31), (23, 59, 59), 3, 365);
        check(951_782_400, (2000, 2, 29), (0, 0, 0), 2, 60);
        check(1_136_239_445, (2006, 1, 2), (22, 4, 5), 1, 2);
        check(1_483_228_799, (2016, 12, 31), (23, 59, 59), 6, 366);
    }

    /// As in Go's `time`, one second after the greatest integer is the smallest.
    #[test]
    fn the_smallest_time_wraps_around() {
        for (seconds, second) in [(i64::MAX, 7), (i64::MIN, 8)] {
            let civil = Civil::of_seconds(seconds);
            assert_eq!(
                (civil.year, civil.month, civil.day),
                (292_277_026_596, 12, 4)
            );
            assert_eq!((civil.hour, civil.minute, civil.second), (15, 30, second));
            assert_eq!((civil.weekday, civil.year_day), (0, 339));
        }
    }
}
