//! Go's regular expression syntax (RE2 with Perl's extensions), parsed into the tree of the crate `regex-syntax`.
//!
//! Matches always cover the whole string, so groups matter only for rewriting; otherwise they are parsed and dropped.

use regex_syntax::hir::{Capture, Class, ClassUnicode, ClassUnicodeRange, Dot, Hir, HirKind, Look, Repetition};

use super::RegexpError;
use super::class;
use super::scanner::{Flags, Scanner, failure};

/// A parsed pattern.
pub(super) struct Syntax {
    pub(super) hir: Hir,
    /// An approximate upper bound for the states of its automaton.
    pub(super) states: u64,
    /// The names of the groups in the tree.
    pub(super) group_names: Vec<Option<String>>,
}

/// How groups are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Groups {
    /// Groups are not in the tree.
    Drop,
    /// Groups are in the tree, without their names.
    Keep,
}

/// Maximum nesting of groups and repetitions; Go allows 1000.
pub(super) const DEPTH_MAX: usize = 250;

/// Maximum number of repetitions, nested ones multiplied.
const REPEAT_MAX: u32 = 1000;

/// Parses a pattern.
pub(super) fn parse(pattern: &str, groups: Groups) -> Result<Syntax, RegexpError> {
    let mut parser = Parser {
        src: Scanner::new(pattern),
        groups,
        group_names: Vec::new(),
        outer: Vec::new(),
        group: Group::default(),
        last_repeat: None,
    };
    while let Some(c) = parser.src.peek() {
        parser.step(c)?;
    }
    if !parser.outer.is_empty() {
        return Err(failure("missing closing )", pattern));
    }
    let Piece { hir, states, .. } = parser.group.finish();
    Ok(Syntax { hir, states, group_names: parser.group_names })
}

struct Parser<'p> {
    src: Scanner<'p>,
    groups: Groups,
    group_names: Vec<Option<String>>,
    /// The groups around the current one.
    outer: Vec<Group>,
    group: Group,
    /// The start of the last repetition operator, if nothing followed it.
    last_repeat: Option<usize>,
}

/// A part of the pattern that can be repeated.
struct Piece {
    hir: Hir,
    states: u64,
    depth: usize,
    /// The maximum number of repetitions of anything in it.
    repeats: u32,
}

/// The parsed part of a group or of the whole pattern.
#[derive(Default)]
struct Group {
    /// The flags to restore after the group.
    flags_outside: Option<Flags>,
    /// Its number, from 1, if it is in the tree.
    number: Option<u32>,
    alternatives: Vec<Piece>,
    pieces: Vec<Piece>,
    /// Literal characters after the pieces.
    run: String,
}

impl Parser<'_> {
    /// Parses what begins with `c`.
    fn step(&mut self, c: char) -> Result<(), RegexpError> {
        let start = self.src.at;
        let repeat_before = self.last_repeat.take();
        match c {
            '(' if self.src.rest().starts_with("(?") => return self.perl_group(),
            '(' => self.open_capture(1, None)?,
            '|' => {
                self.src.at += 1;
                self.group.end_alternative();
            }
            ')' => return self.close_group(),
            '^' => self.look(1, if self.src.flags.multi_line { Look::StartLF } else { Look::Start }),
            '$' => self.look(1, if self.src.flags.multi_line { Look::EndLF } else { Look::End }),
            '.' => {
                self.src.at += 1;
                let dot = if self.src.flags.dot_newline { Dot::AnyChar } else { Dot::AnyCharExceptLF };
                self.group.push(Piece::of(Hir::dot(dot), 8));
            }
            '[' => {
                let class = class::parse_brackets(&mut self.src)?;
                self.group.push(Piece::of_class(class));
            }
            '*' => self.repeat(start, 1, (0, None), repeat_before)?,
            '+' => self.repeat(start, 1, (1, None), repeat_before)?,
            '?' => self.repeat(start, 1, (0, Some(1)), repeat_before)?,
            '{' => match counts(self.src.rest()) {
                Some((len, counts)) => self.counted_repeat(start, len, counts, repeat_before)?,
                None => self.literal(),
            },
            '\\' => self.backslash()?,
            _ => self.literal(),
        }
        Ok(())
    }

    fn literal(&mut self) {
        let c = self.src.next_char().expect("step is called with a character ahead");
        self.push_char(u32::from(c));
    }

    /// Appends a character; a surrogate, which escapes can name, matches nothing.
    fn push_char(&mut self, code: u32) {
        let Some(c) = char::from_u32(code) else { return self.group.push(Piece::of(Hir::fail(), 1)) };
        if !self.src.flags.fold_case || (c.is_ascii() && !c.is_ascii_alphabetic()) {
            self.group.run.push(c);
            return;
        }
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
        class.case_fold_simple();
        self.group.push(Piece::of_class(class));
    }

    fn look(&mut self, len: usize, look: Look) {
        self.src.at += len;
        self.group.push(Piece::of(Hir::look(look), 1));
    }

    fn counted_repeat(
        &mut self,
        start: usize,
        len: usize,
        counts: Counts,
        before: Option<usize>,
    ) -> Result<(), RegexpError> {
        let (min, max) = counts;
        let bounded = min <= REPEAT_MAX && max.is_none_or(|max| max <= REPEAT_MAX && min <= max);
        match bounded {
            true => self.repeat(start, len, counts, before),
            false => Err(failure("invalid repeat count", &self.src.pattern[start..start + len])),
        }
    }

    /// Repeats the piece before an operator that is `len` bytes long.
    fn repeat(&mut self, start: usize, len: usize, counts: Counts, before: Option<usize>) -> Result<(), RegexpError> {
        self.src.at = start + len;
        let greedy = self.src.eat("?") == self.src.flags.lazy;
        if let Some(before) = before {
            return Err(failure("invalid nested repetition operator", &self.src.pattern[before..self.src.at]));
        }
        let operator = &self.src.pattern[start..self.src.at];
        let missing = || failure("missing argument to repetition operator", operator);
        let piece = self.group.pop().ok_or_else(missing)?.repeated(counts, greedy);
        let counted = operator.starts_with('{') && (counts.0 >= 2 || counts.1.is_some_and(|max| max >= 2));
        if counted && piece.repeats > REPEAT_MAX {
            return Err(failure("invalid repeat count", operator));
        }
        self.last_repeat = Some(start);
        self.push_bounded(piece)
    }

    fn push_bounded(&mut self, piece: Piece) -> Result<(), RegexpError> {
        if piece.depth > DEPTH_MAX {
            return Err(failure("expression nests too deeply", self.src.pattern));
        }
        self.group.push(piece);
        Ok(())
    }

    /// Opens a group after its introduction of `len` bytes.
    fn open_group(&mut self, len: usize) -> Result<(), RegexpError> {
        self.src.at += len;
        if self.outer.len() >= DEPTH_MAX {
            return Err(failure("expression nests too deeply", self.src.pattern));
        }
        let group = Group { flags_outside: Some(self.src.flags), ..Group::default() };
        self.outer.push(std::mem::replace(&mut self.group, group));
        Ok(())
    }

    /// Opens a capturing group.
    fn open_capture(&mut self, len: usize, name: Option<&str>) -> Result<(), RegexpError> {
        self.open_group(len)?;
        if self.groups == Groups::Keep {
            self.group_names.push(name.map(str::to_owned));
            self.group.number = Some(self.group_names.len() as u32);
        }
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), RegexpError> {
        let Some(outer) = self.outer.pop() else { return Err(failure("unexpected )", self.src.pattern)) };
        self.src.at += 1;
        let group = std::mem::replace(&mut self.group, outer);
        self.src.flags = group.flags_outside.unwrap_or(self.src.flags);
        let number = group.number;
        let mut piece = group.finish();
        if let Some(index) = number {
            piece.hir = Hir::capture(Capture { index, name: None, sub: Box::new(piece.hir) });
            piece.depth += 1;
        }
        self.push_bounded(piece)
    }

    /// Parses what begins with `(?`: a named group, or flags and perhaps a group.
    fn perl_group(&mut self) -> Result<(), RegexpError> {
        let rest = self.src.rest();
        let name_at = match rest.as_bytes() {
            [_, _, b'P', b'<', _, ..] => 4,
            [_, _, b'<', _, ..] => 3,
            _ => return self.flags(),
        };
        let Some(end) = rest.find('>') else { return Err(failure("invalid named capture", rest)) };
        let name = rest.get(name_at..end).unwrap_or("");
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        match is_name {
            true => self.open_capture(end + 1, Some(name)),
            false => Err(failure("invalid named capture", &rest[..=end])),
        }
    }

    /// Parses `(?i)`, `(?s-i:` and the like.
    fn flags(&mut self) -> Result<(), RegexpError> {
        let start = self.src.at;
        self.src.at += 2;
        let (mut flags, mut on, mut any) = (self.src.flags, true, false);
        while let Some(c) = self.src.next_char() {
            match c {
                'i' => flags.fold_case = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_newline = on,
                'U' => flags.lazy = on,
                '-' if on => {
                    (on, any) = (false, false);
                    continue;
                }
                // A `-` must be followed by a flag.
                ':' | ')' if on || any => {
                    if c == ':' {
                        self.open_group(0)?;
                    }
                    self.src.flags = flags;
                    return Ok(());
                }
                _ => break,
            }
            any = true;
        }
        Err(failure("invalid or unsupported Perl syntax", &self.src.pattern[start..self.src.at]))
    }

    /// Parses what begins with a backslash.
    fn backslash(&mut self) -> Result<(), RegexpError> {
        let rest = self.src.rest();
        match rest.as_bytes().get(1) {
            Some(b'A') => self.look(2, Look::Start),
            Some(b'z') => self.look(2, Look::End),
            Some(b'b') => self.look(2, Look::WordAscii),
            Some(b'B') => self.look(2, Look::WordAsciiNegate),
            Some(b'C') => return Err(failure("invalid escape sequence", "\\C")),
            Some(b'Q') => {
                let quoted = &rest[2..];
                let (text, len) = quoted.split_once("\\E").map_or((quoted, quoted.len()), |(t, _)| (t, t.len() + 2));
                self.src.at += 2 + len;
                text.chars().for_each(|c| self.push_char(u32::from(c)));
            }
            _ => match class::parse_escaped(&mut self.src)? {
                Some(class) => self.group.push(Piece::of_class(class)),
                None => {
                    let code = self.src.escape()?;
                    self.push_char(code);
                }
            },
        }
        Ok(())
    }
}

impl Group {
    fn push(&mut self, piece: Piece) {
        self.end_run();
        self.pieces.push(piece);
    }

    /// Removes the piece that a repetition applies to.
    fn pop(&mut self) -> Option<Piece> {
        if let Some(c) = self.run.pop() {
            self.end_run();
            return Some(Piece::of_text(c.encode_utf8(&mut [0; 4])));
        }
        self.pieces.pop()
    }

    fn end_run(&mut self) {
        if !self.run.is_empty() {
            self.pieces.push(Piece::of_text(&self.run));
            self.run.clear();
        }
    }

    fn end_alternative(&mut self) {
        self.end_run();
        let piece = Piece::joined(std::mem::take(&mut self.pieces), Hir::concat);
        self.alternatives.push(piece);
    }

    fn finish(mut self) -> Piece {
        self.end_alternative();
        Piece::joined(self.alternatives, Hir::alternation)
    }
}

impl Piece {
    fn of(hir: Hir, states: u64) -> Self {
        Self { hir, states, depth: 1, repeats: 1 }
    }

    fn of_text(text: &str) -> Self {
        Self::of(Hir::literal(text.as_bytes()), text.len() as u64)
    }

    fn of_class(class: ClassUnicode) -> Self {
        // A range of characters takes a few ranges of bytes.
        let states = 8 * (1 + class.ranges().len() as u64);
        Self::of(Hir::class(Class::Unicode(class)), states)
    }

    fn joined(mut pieces: Vec<Self>, join: impl FnOnce(Vec<Hir>) -> Hir) -> Self {
        if pieces.len() == 1 {
            return pieces.remove(0);
        }
        let states = pieces.iter().map(|piece| piece.states + 1).fold(1, u64::saturating_add);
        let depth = 1 + pieces.iter().map(|piece| piece.depth).max().unwrap_or(0);
        let repeats = pieces.iter().map(|piece| piece.repeats).max().unwrap_or(1);
        let hir = join(pieces.into_iter().map(|piece| piece.hir).collect());
        Self { hir, states, depth, repeats }
    }

    fn repeated(self, (min, max): Counts, greedy: bool) -> Self {
        let times = max.unwrap_or(min).max(1);
        let repeats = if max == Some(0) { 1 } else { self.repeats.saturating_mul(times) };
        let states = (self.states + 2).saturating_mul(u64::from(times));
        let is_repetition = matches!(self.hir.kind(), HirKind::Repetition(_));
        let hir = match (min, max, greedy) {
            // Printed as `a+?` the first `+` would not be greedy, and the whole no longer optional.
            (0, Some(1), true) if is_repetition => Hir::alternation(vec![self.hir, Hir::empty()]),
            _ => Hir::repetition(Repetition { min, max, greedy, sub: Box::new(self.hir) }),
        };
        Self { hir, states, depth: self.depth + 1, repeats }
    }
}

/// The minimum and the maximum number of repetitions.
type Counts = (u32, Option<u32>);

/// Parses `{2}`, `{2,}` or `{2,3}` and returns its length too; anything else is literal text.
fn counts(text: &str) -> Option<(usize, Counts)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let counts = match inner.split_once(',') {
        None => {
            let n = count(inner)?;
            (n, Some(n))
        }
        Some((min, "")) => (count(min)?, None),
        Some((min, max)) => (count(min)?, Some(count(max)?)),
    };
    Some((end + 1, counts))
}

/// Parses a number without leading zeros; numbers that are too large saturate.
fn count(digits: &str) -> Option<u32> {
    let canonical = digits == "0" || !digits.starts_with('0');
    let is_number = canonical && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u32::MAX))
}
