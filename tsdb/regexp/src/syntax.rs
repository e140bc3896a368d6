//! Go's regular expression syntax (RE2 with Perl's extensions), parsed into the tree of the crate
//! `regex-syntax`.
//!
//! A pattern is first only checked, with Go's limits. This takes little memory for any pattern. The
//! tree, which can be a thousand times larger than the pattern, is built later, when a request
//! needs it.
//!
//! Matches always cover the whole string, so groups matter only for rewriting. Otherwise they are
//! parsed and dropped.

use regex_syntax::hir::{
    Capture, Class, ClassUnicode, ClassUnicodeRange, Dot, Hir, Look, Repetition,
};

use super::class::{self, CharSet};
use super::error::RegexpError;
use super::scanner::{Flags, Scanner, failure};

/// A parsed pattern.
pub(crate) struct Syntax {
    /// The tree. Empty if the pattern was only checked.
    pub(crate) hir: Hir,
    /// The names of the groups in the tree.
    pub(crate) group_names: Vec<Option<String>>,
    /// `true` if the pattern matches the empty string.
    pub(crate) matches_empty: bool,
    /// Number of instructions of Go's program.
    pub(crate) n_instructions: usize,
    /// Upper bound for the size of the tree in bytes.
    pub(crate) tree_size: usize,
}

/// The result of parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// No tree: only the check.
    Check,
    /// A tree without groups.
    Match,
    /// A tree with groups, without their names.
    Rewrite,
}

/// Maximum nesting of groups and repetitions, as in Go.
pub(crate) const DEPTH_MAX: usize = 1000;

/// Maximum number of repetitions, nested ones multiplied, as in Go.
const REPEAT_MAX: u32 = 1000;

/// Maximum number of instructions of Go's program: 128 MiB of 40 bytes each.
const INSTRUCTIONS_MAX: u64 = (128 << 20) / 40;

/// Maximum number of characters and ends of ranges in a pattern, as in Go: 128 MiB of 4 bytes each.
const RUNES_MAX: usize = (128 << 20) / 4;

/// Size of a node of the tree in bytes, with its properties and its share of growing lists, rounded
/// up.
const NODE_SIZE: usize = 256;

/// Copies of the tree that exist while a pattern is compiled: over characters, and over symbols.
pub(crate) const TREE_COPIES: usize = 2;

/// Parses a pattern.
pub(crate) fn parse(pattern: &str, goal: Goal) -> Result<Syntax, RegexpError> {
    let mut parser = Parser {
        src: Scanner::new(pattern, goal != Goal::Check),
        goal,
        group_names: Vec::new(),
        n_groups: 0,
        outer: Vec::new(),
        group: Group::default(),
        last_repeat: None,
        n_runes: 0,
        tree_size: NODE_SIZE,
    };
    while let Some(c) = parser.src.peek() {
        parser.step(c)?;
    }
    if !parser.outer.is_empty() {
        return Err(failure("missing closing )", pattern));
    }
    let group = std::mem::take(&mut parser.group);
    let Piece { hir, measure } = parser.finish(group);
    if measure.instructions > INSTRUCTIONS_MAX || parser.n_runes > RUNES_MAX {
        return Err(failure("expression too large", pattern));
    }
    let Measure {
        instructions,
        matches_empty,
        ..
    } = measure;
    let hir = hir.unwrap_or_else(Hir::empty);
    let n_instructions = instructions as usize;
    let Parser {
        group_names,
        tree_size,
        ..
    } = parser;
    Ok(Syntax {
        hir,
        group_names,
        matches_empty,
        n_instructions,
        tree_size,
    })
}

struct Parser<'p> {
    src: Scanner<'p>,
    goal: Goal,
    group_names: Vec<Option<String>>,
    n_groups: u32,
    /// The groups around the current one.
    outer: Vec<Group>,
    group: Group,
    /// The start of the last repetition operator, if nothing followed it.
    last_repeat: Option<usize>,
    /// Number of characters and ends of ranges.
    n_runes: usize,
    /// Upper bound for the size of the tree in bytes.
    tree_size: usize,
}

/// A part of the pattern that can be repeated.
struct Piece {
    /// `None` if the pattern is only checked.
    hir: Option<Hir>,
    measure: Measure,
}

/// The properties of a part that limits and matching depend on.
#[derive(Debug, Clone, Copy)]
struct Measure {
    /// Instructions of Go's program.
    instructions: u64,
    depth: usize,
    /// The maximum number of repetitions of anything in it.
    repeats: u32,
    matches_empty: bool,
}

/// The parsed part of a group or of the whole pattern.
#[derive(Default)]
struct Group {
    /// The flags to restore after the group.
    flags_outside: Option<Flags>,
    /// Its number, from 1, if it is a capturing group.
    number: Option<u32>,
    alternatives: Pieces,
    pieces: Pieces,
    /// Literal characters after the pieces.
    literal: String,
}

/// A list of pieces.
#[derive(Default)]
struct Pieces {
    /// The last piece, which a repetition may still apply to.
    last: Option<Piece>,
    /// The pieces before it.
    before: Option<Joined>,
    hirs: Vec<Hir>,
}

impl Parser<'_> {
    /// Parses the next part of the pattern, which begins with `c`.
    fn step(&mut self, c: char) -> Result<(), RegexpError> {
        let start = self.src.position;
        let repeat_before = self.last_repeat.take();
        match c {
            '(' if self.src.rest().starts_with("(?") => return self.perl_group(),
            '(' => self.open_capture(1, None)?,
            '|' => {
                self.src.position += 1;
                self.end_alternative();
            }
            ')' => return self.close_group(),
            '^' => self.look(
                1,
                if self.src.flags.multi_line {
                    Look::StartLF
                } else {
                    Look::Start
                },
            ),
            '$' => self.look(
                1,
                if self.src.flags.multi_line {
                    Look::EndLF
                } else {
                    Look::End
                },
            ),
            '.' => {
                self.src.position += 1;
                let dot = if self.src.flags.dot_newline {
                    Dot::AnyChar
                } else {
                    Dot::AnyCharExceptLF
                };
                self.push_leaf(0, false, || Hir::dot(dot));
            }
            '[' => {
                let set = class::parse_brackets(&mut self.src)?;
                self.push_class(set);
            }
            '*' => self.repeat(start, 1, Counts::new(0, None), repeat_before)?,
            '+' => self.repeat(start, 1, Counts::new(1, None), repeat_before)?,
            '?' => self.repeat(start, 1, Counts::new(0, Some(1)), repeat_before)?,
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
        let c = self
            .src
            .next_char()
            .expect("step is called with a character ahead");
        self.push_char(u32::from(c));
    }

    /// Appends a character. A surrogate, which escapes can name, matches nothing.
    fn push_char(&mut self, code: u32) {
        let Some(c) = char::from_u32(code) else {
            return self.push_leaf(1, false, Hir::fail);
        };
        if !self.src.flags.fold_case || (c.is_ascii() && !c.is_ascii_alphabetic()) {
            self.group.literal.push(c);
            return;
        }
        self.push_leaf(2, false, || {
            let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            class.case_fold_simple();
            Hir::class(Class::Unicode(class))
        });
    }

    fn look(&mut self, len: usize, look: Look) {
        self.src.position += len;
        // All assertions but `\b` hold in the empty string.
        self.push_leaf(0, look != Look::WordAscii, || Hir::look(look));
    }

    fn push_class(&mut self, CharSet { n_ranges, class }: CharSet) {
        self.push_leaf(2 * n_ranges, false, || {
            Hir::class(Class::Unicode(class.unwrap_or_else(ClassUnicode::empty)))
        });
    }

    /// Appends a piece of one instruction.
    fn push_leaf(&mut self, n_runes: usize, matches_empty: bool, hir: impl FnOnce() -> Hir) {
        self.end_literal();
        // Each rune is at most one range. Case folding can double the ranges, and they are copied
        // once.
        let size = n_runes * 4 * size_of::<ClassUnicodeRange>();
        let piece = self.leaf(n_runes, size, 1, matches_empty, hir);
        self.group.pieces.push(piece);
    }

    fn leaf(
        &mut self,
        n_runes: usize,
        size: usize,
        n_chars: usize,
        matches_empty: bool,
        hir: impl FnOnce() -> Hir,
    ) -> Piece {
        self.n_runes += n_runes;
        self.tree_size += NODE_SIZE + size;
        let measure = Measure {
            instructions: n_chars as u64,
            depth: 1,
            repeats: 1,
            matches_empty,
        };
        Piece {
            hir: self.src.builds.then(hir),
            measure,
        }
    }

    fn literal_piece(&mut self, text: &str) -> Piece {
        let n_chars = text.chars().count();
        self.leaf(n_chars, text.len(), n_chars, false, || {
            Hir::literal(text.as_bytes())
        })
    }

    fn end_literal(&mut self) {
        let literal = std::mem::take(&mut self.group.literal);
        if !literal.is_empty() {
            let piece = self.literal_piece(&literal);
            self.group.pieces.push(piece);
        }
    }

    /// Removes the piece that a repetition applies to.
    fn pop(&mut self) -> Option<Piece> {
        let Some(c) = self.group.literal.pop() else {
            return self.group.pieces.last.take();
        };
        self.end_literal();
        Some(self.literal_piece(c.encode_utf8(&mut [0; 4])))
    }

    fn end_alternative(&mut self) {
        self.end_literal();
        self.tree_size += NODE_SIZE;
        let piece =
            std::mem::take(&mut self.group.pieces).join(|joined| joined.as_sequence, Hir::concat);
        self.group.alternatives.push(piece);
    }

    /// Returns a group, or the whole pattern, as one piece.
    fn finish(&mut self, group: Group) -> Piece {
        // `end_alternative` ends the alternative of `self.group`.
        let outer = std::mem::replace(&mut self.group, group);
        self.end_alternative();
        let group = std::mem::replace(&mut self.group, outer);
        group
            .alternatives
            .join(|joined| joined.as_alternatives, Hir::alternation)
    }

    fn counted_repeat(
        &mut self,
        start: usize,
        len: usize,
        counts: Counts,
        before: Option<usize>,
    ) -> Result<(), RegexpError> {
        let Counts { min, max } = counts;
        let is_valid = min <= REPEAT_MAX && max.is_none_or(|max| max <= REPEAT_MAX && min <= max);
        if !is_valid {
            return Err(failure(
                "invalid repeat count",
                &self.src.pattern[start..start + len],
            ));
        }
        self.repeat(start, len, counts, before)
    }

    /// Repeats the piece before an operator that is `len` bytes long.
    fn repeat(
        &mut self,
        start: usize,
        len: usize,
        counts: Counts,
        before: Option<usize>,
    ) -> Result<(), RegexpError> {
        self.src.position = start + len;
        let greedy = self.src.eat("?") == self.src.flags.lazy;
        if let Some(before) = before {
            return Err(failure(
                "invalid nested repetition operator",
                &self.src.pattern[before..self.src.position],
            ));
        }
        let operator = &self.src.pattern[start..self.src.position];
        let Some(piece) = self.pop() else {
            return Err(failure("missing argument to repetition operator", operator));
        };
        let piece = piece.repeated(counts, greedy);
        // As in Go, `*`, `+`, `?`, and counts of 0 and 1, do not add to the bounded repetitions.
        let is_counted = operator.starts_with('{')
            && (counts.min >= 2 || counts.max.is_some_and(|max| max >= 2));
        if is_counted && piece.measure.repeats > REPEAT_MAX {
            return Err(failure("invalid repeat count", operator));
        }
        self.last_repeat = Some(start);
        self.push_bounded(piece)
    }

    fn push_bounded(&mut self, piece: Piece) -> Result<(), RegexpError> {
        if piece.measure.depth > DEPTH_MAX {
            return Err(failure("expression nests too deeply", self.src.pattern));
        }
        self.end_literal();
        self.tree_size += NODE_SIZE;
        self.group.pieces.push(piece);
        Ok(())
    }

    /// Opens a group after its introduction of `len` bytes.
    fn open_group(&mut self, len: usize) -> Result<(), RegexpError> {
        self.src.position += len;
        if self.outer.len() >= DEPTH_MAX {
            return Err(failure("expression nests too deeply", self.src.pattern));
        }
        let group = Group {
            flags_outside: Some(self.src.flags),
            ..Group::default()
        };
        self.outer.push(std::mem::replace(&mut self.group, group));
        Ok(())
    }

    /// Opens a capturing group.
    fn open_capture(&mut self, len: usize, name: Option<&str>) -> Result<(), RegexpError> {
        self.open_group(len)?;
        self.n_groups += 1;
        self.group.number = Some(self.n_groups);
        if self.goal == Goal::Rewrite {
            self.group_names.push(name.map(str::to_owned));
        }
        Ok(())
    }

    fn close_group(&mut self) -> Result<(), RegexpError> {
        let Some(outer) = self.outer.pop() else {
            return Err(failure("unexpected )", self.src.pattern));
        };
        self.src.position += 1;
        let group = std::mem::replace(&mut self.group, outer);
        self.src.flags = group.flags_outside.unwrap_or(self.src.flags);
        let number = group.number;
        let mut piece = self.finish(group);
        if let Some(index) = number {
            if self.goal == Goal::Rewrite {
                piece.hir = piece.hir.map(|sub| {
                    Hir::capture(Capture {
                        index,
                        name: None,
                        sub: Box::new(sub),
                    })
                });
            }
            piece.measure.depth += 1;
            piece.measure.instructions = piece.measure.instructions.saturating_add(2);
        }
        self.push_bounded(piece)
    }

    /// Parses a part that begins with `(?`: a named group, or flags and perhaps a group.
    fn perl_group(&mut self) -> Result<(), RegexpError> {
        let rest = self.src.rest();
        let name_at = match rest.as_bytes() {
            [_, _, b'P', b'<', _, ..] => 4,
            [_, _, b'<', _, ..] => 3,
            _ => return self.flags(),
        };
        let Some(end) = rest.find('>') else {
            return Err(failure("invalid named capture", rest));
        };
        let name = rest.get(name_at..end).unwrap_or("");
        let is_name =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return Err(failure("invalid named capture", &rest[..=end]));
        }
        self.open_capture(end + 1, Some(name))
    }

    /// Parses `(?i)`, `(?s-i:` and the like.
    fn flags(&mut self) -> Result<(), RegexpError> {
        let start = self.src.position;
        self.src.position += 2;
        let mut flags = self.src.flags;
        let mut on = true;
        let mut any = false;
        while let Some(c) = self.src.next_char() {
            match c {
                'i' => flags.fold_case = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_newline = on,
                'U' => flags.lazy = on,
                '-' if on => {
                    on = false;
                    any = false;
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
        Err(failure(
            "invalid or unsupported Perl syntax",
            &self.src.pattern[start..self.src.position],
        ))
    }

    /// Parses a part that begins with a backslash.
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
                let (text, len) = quoted
                    .split_once("\\E")
                    .map_or((quoted, quoted.len()), |(t, _)| (t, t.len() + 2));
                self.src.position += 2 + len;
                for c in text.chars() {
                    self.push_char(u32::from(c));
                }
            }
            _ => match class::parse_escaped(&mut self.src)? {
                Some(set) => self.push_class(set),
                None => {
                    let code = self.src.escape()?;
                    self.push_char(code);
                }
            },
        }
        Ok(())
    }
}

impl Pieces {
    fn push(&mut self, piece: Piece) {
        if let Some(Piece { hir, measure }) = self.last.replace(piece) {
            self.before = Some(match self.before {
                Some(before) => before.and(measure),
                None => Joined {
                    as_alternatives: measure,
                    as_sequence: measure,
                },
            });
            self.hirs.extend(hir);
        }
    }

    /// Joins the pieces. `choose` selects one of the measures.
    fn join(
        mut self,
        choose: impl FnOnce(Joined) -> Measure,
        join: impl FnOnce(Vec<Hir>) -> Hir,
    ) -> Piece {
        let empty = Measure {
            instructions: 1,
            depth: 1,
            repeats: 1,
            matches_empty: true,
        };
        let Some(last) = self.last else {
            return Piece {
                hir: Some(Hir::empty()),
                measure: empty,
            };
        };
        let Some(before) = self.before else {
            return last;
        };
        let mut measure = choose(before.and(last.measure));
        measure.depth += 1;
        let hir = last.hir.map(|last| {
            self.hirs.push(last);
            join(self.hirs)
        });
        Piece { hir, measure }
    }
}

/// The measures of several pieces: as alternatives and as a sequence.
#[derive(Clone, Copy)]
struct Joined {
    as_alternatives: Measure,
    as_sequence: Measure,
}

impl Joined {
    /// Adds a piece.
    fn and(self, next: Measure) -> Self {
        let Self {
            as_alternatives: alternatives,
            as_sequence: sequence,
        } = self;
        Self {
            as_alternatives: Measure {
                // Each further alternative needs an instruction that branches.
                instructions: alternatives.instructions_with(next).saturating_add(1),
                depth: alternatives.depth.max(next.depth),
                repeats: alternatives.repeats.max(next.repeats),
                matches_empty: alternatives.matches_empty || next.matches_empty,
            },
            as_sequence: Measure {
                instructions: sequence.instructions_with(next),
                depth: sequence.depth.max(next.depth),
                repeats: sequence.repeats.max(next.repeats),
                matches_empty: sequence.matches_empty && next.matches_empty,
            },
        }
    }
}

impl Piece {
    fn repeated(self, counts: Counts, greedy: bool) -> Self {
        let hir = self.hir.map(|sub| {
            Hir::repetition(Repetition {
                min: counts.min,
                max: counts.max,
                greedy,
                sub: Box::new(sub),
            })
        });
        Self {
            hir,
            measure: self.measure.repeated(counts),
        }
    }
}

impl Measure {
    /// Returns the instructions of this part and of the next one.
    fn instructions_with(self, next: Self) -> u64 {
        self.instructions.saturating_add(next.instructions)
    }

    fn repeated(self, counts: Counts) -> Self {
        let Counts { min, max } = counts;
        let times = |n: u32| self.instructions.saturating_mul(u64::from(n));
        let instructions = match (min, max) {
            (0, None) => self.instructions.saturating_add(2),
            (_, None) => times(min).saturating_add(1),
            (_, Some(max)) => times(max).saturating_add(u64::from(max - min)).max(1),
        };
        let repeats = if max == Some(0) {
            1
        } else {
            self.repeats.saturating_mul(max.unwrap_or(min).max(1))
        };
        Self {
            instructions,
            depth: self.depth + 1,
            repeats,
            matches_empty: min == 0 || self.matches_empty,
        }
    }
}

/// The minimum and the maximum number of repetitions.
#[derive(Clone, Copy)]
struct Counts {
    min: u32,
    max: Option<u32>,
}

impl Counts {
    fn new(min: u32, max: Option<u32>) -> Self {
        Self { min, max }
    }
}

/// Parses `{2}`, `{2,}` or `{2,3}`. Returns its length too. Anything else is literal text.
fn counts(text: &str) -> Option<(usize, Counts)> {
    let end = 1 + text[1..]
        .bytes()
        .position(|b| !b.is_ascii_digit() && b != b',')?;
    let inner = text[end..].starts_with('}').then_some(&text[1..end])?;
    let counts = match inner.split_once(',') {
        None => {
            let n = count(inner)?;
            Counts::new(n, Some(n))
        }
        Some((min, "")) => Counts::new(count(min)?, None),
        Some((min, max)) => Counts::new(count(min)?, Some(count(max)?)),
    };
    Some((end + 1, counts))
}

/// Parses a number without leading zeros. Numbers that are too large saturate.
fn count(digits: &str) -> Option<u32> {
    let canonical = digits == "0" || !digits.starts_with('0');
    let is_number = canonical && !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u32::MAX))
}
