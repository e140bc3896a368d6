//! Formats with verbs: Go's `fmt.Sprintf`.

use super::limits::SIZE_MAX;
use super::print::{Flags, Printer, sprint};
use super::value::Value;

/// Maximum width and precision.
const WIDTH_MAX: i64 = 1_000_000;

/// Returns the maximum number of characters by which the widths in a format pad values, at most
/// [`SIZE_MAX`].
pub(crate) fn padding_max(format: &str) -> usize {
    let mut widest = 0;
    let mut number = 0_usize;
    for byte in format.bytes() {
        number = match byte {
            b'0'..=b'9' => number
                .saturating_mul(10)
                .saturating_add(usize::from(byte - b'0')),
            b'*' => WIDTH_MAX as usize,
            _ => 0,
        };
        widest = widest.max(number);
    }
    let n_verbs = format.bytes().filter(|&byte| byte == b'%').count();
    n_verbs
        .saturating_mul(widest.min(WIDTH_MAX as usize))
        .min(SIZE_MAX)
}

/// Formats values by a format with verbs.
pub(crate) fn sprintf(format: &str, args: &[Value]) -> String {
    let mut printer = Printer::default();
    let mut verbs = Verbs {
        rest: format,
        args,
        arg: 0,
        is_reordered: false,
        is_good: true,
    };
    while let Some((text, rest)) = verbs.rest.split_once('%')
        && !printer.is_full()
    {
        printer.out.push_str(text);
        verbs.rest = rest;
        verbs.verb(&mut printer);
    }
    printer.out.push_str(verbs.rest);
    if !verbs.is_reordered && verbs.arg < args.len() {
        printer.flags = Flags::default();
        printer.out.push_str("%!(EXTRA ");
        for (i, arg) in args[verbs.arg..].iter().enumerate() {
            if printer.is_full() {
                break;
            }
            printer.out.push_str(if i > 0 { ", " } else { "" });
            if matches!(arg, Value::Nil) {
                printer.out.push_str("<nil>");
            } else {
                printer.out.push_str(arg.type_name());
                printer.out.push('=');
                printer.out.push_str(&sprint(std::slice::from_ref(arg)));
            }
        }
        printer.out.push(')');
    }
    printer.out
}

/// Reads a format.
struct Verbs<'a> {
    rest: &'a str,
    args: &'a [Value],
    /// Index of the next argument.
    arg: usize,
    is_reordered: bool,
    /// `true` if the indexes in the current verb are valid.
    is_good: bool,
}

impl Verbs<'_> {
    /// Prints one verb, after its `%`.
    fn verb(&mut self, printer: &mut Printer) {
        self.is_good = true;
        printer.flags = Flags::default();
        while let Some(flag) = self.rest.chars().next().filter(|c| "#0+- ".contains(*c)) {
            printer.flags.set(flag);
            self.rest = &self.rest[1..];
        }
        let mut after_index = self.index();
        if self.take('*') {
            match self.int() {
                Some(width) => {
                    printer.flags.width = Some(width.unsigned_abs() as usize);
                    printer.flags.minus |= width < 0;
                }
                None => printer.out.push_str("%!(BADWIDTH)"),
            }
            after_index = false;
        } else {
            printer.flags.width = self.number();
            self.is_good &= !(after_index && printer.flags.width.is_some());
        }
        if self.rest.len() > 1 && self.take('.') {
            self.is_good &= !after_index;
            after_index = self.index();
            if self.take('*') {
                printer.flags.precision = self
                    .int()
                    .and_then(|precision| usize::try_from(precision).ok());
                if printer.flags.precision.is_none() {
                    printer.out.push_str("%!(BADPREC)");
                }
                after_index = false;
            } else {
                printer.flags.precision = Some(self.number().unwrap_or(0));
            }
        }
        if !after_index {
            self.index();
        }
        let Some(verb) = self.rest.chars().next() else {
            printer.out.push_str("%!(NOVERB)");
            return;
        };
        self.rest = &self.rest[verb.len_utf8()..];
        match self.args.get(self.arg) {
            _ if verb == '%' => printer.out.push('%'),
            _ if !self.is_good => printer.out.push_str(&format!("%!{verb}(BADINDEX)")),
            None => printer.out.push_str(&format!("%!{verb}(MISSING)")),
            Some(value) => {
                self.arg += 1;
                printer.value(value, if verb == 'w' { 'v' } else { verb }, 0);
            }
        }
    }

    fn take(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn number(&mut self) -> Option<usize> {
        let len = self.rest.len()
            - self
                .rest
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .len();
        let (digits, rest) = self.rest.split_at(len);
        self.rest = rest;
        digits
            .parse()
            .ok()
            .filter(|&number| number <= WIDTH_MAX as usize)
    }

    /// Reads an argument index, `[2]`, and returns `true` if there is one.
    fn index(&mut self) -> bool {
        let Some(rest) = self.rest.strip_prefix('[') else {
            return false;
        };
        self.is_reordered = true;
        let Some((index, rest)) = rest.split_once(']') else {
            self.is_good = false;
            self.rest = rest;
            return false;
        };
        self.rest = rest;
        match index.parse::<usize>() {
            Ok(index) if (1..=self.args.len()).contains(&index) => self.arg = index - 1,
            _ => self.is_good = false,
        }
        true
    }

    /// Takes an argument as width or precision.
    fn int(&mut self) -> Option<i64> {
        let value = self.args.get(self.arg)?;
        self.arg += 1;
        value
            .as_int()
            .filter(|number| (-WIDTH_MAX..=WIDTH_MAX).contains(number))
    }
}
