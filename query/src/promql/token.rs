//! The words of PromQL.

use std::fmt::Write;

use super::ast::{AggregateOp, BinaryOp};
use super::quote;

/// A word and where it stands, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    EndOfInput,
    Comma,
    Colon,
    LeftParen,
    RightParen,
    LeftBrace,
    RightBrace,
    LeftBracket,
    RightBracket,
    /// `=`
    Equal,
    /// `=~`
    EqualRegexp,
    /// `!~`
    NotEqualRegexp,
    /// `@`
    At,
    Number,
    Duration,
    String,
    Identifier,
    /// An identifier with a colon in it.
    MetricIdentifier,
    Operator(BinaryOp),
    Aggregate(AggregateOp),
    Keyword(Keyword),
    Preprocessor(Preprocessor),
}

/// The words that modify an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    Anchored,
    Bool,
    By,
    Fill,
    FillLeft,
    FillRight,
    GroupLeft,
    GroupRight,
    Ignoring,
    Offset,
    On,
    Smoothed,
    Without,
}

/// The names that are functions of the query rather than of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preprocessor {
    Start,
    End,
    Step,
    Range,
    MinOf,
    MaxOf,
}

impl TokenKind {
    /// Returns what an identifier outside of braces is; keywords are known in upper and lower case.
    pub(super) fn of_word(word: &str) -> Self {
        let mut lower = [0; KEYWORD_SIZE_MAX];
        let Some(lower) = lower.get_mut(..word.len()) else { return Self::of_name(word) };
        lower.copy_from_slice(word.as_bytes());
        lower.make_ascii_lowercase();
        keyword(lower).unwrap_or_else(|| Self::of_name(word))
    }

    fn of_name(word: &str) -> Self {
        if word.contains(':') { Self::MetricIdentifier } else { Self::Identifier }
    }

    /// Tells whether an expression can begin with the token.
    pub(super) fn begins_expression(self) -> bool {
        use TokenKind::{Duration, LeftBrace, LeftParen, Number, Operator, String};
        match self {
            LeftBrace | LeftParen | Number | Duration | String => true,
            Operator(BinaryOp::Add | BinaryOp::Sub) => true,
            _ => self.is_metric_name(),
        }
    }

    /// Tells whether the token can be the name of a metric.
    pub(super) fn is_metric_name(self) -> bool {
        match self {
            Self::Identifier | Self::MetricIdentifier | Self::Aggregate(_) | Self::Preprocessor(_) => true,
            Self::Operator(op) => matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Unless),
            Self::Keyword(keyword) => {
                use Keyword::{Bool, GroupLeft, GroupRight, Ignoring, On};
                !matches!(keyword, Bool | On | Ignoring | GroupLeft | GroupRight)
            }
            _ => false,
        }
    }

    /// Tells whether the token can be the name of a label in a list such as `by (...)`.
    pub(super) fn is_label_name(self) -> bool {
        use BinaryOp::{And, Atan2, Or, Unless};
        match self {
            Self::Identifier | Self::MetricIdentifier | Self::Aggregate(_) | Self::Preprocessor(_) => true,
            Self::Operator(op) => matches!(op, And | Or | Unless | Atan2),
            Self::Keyword(keyword) => keyword != Keyword::Without,
            _ => false,
        }
    }
}

impl Token {
    /// Returns the token's text.
    pub(super) fn text<'q>(&self, query: &'q str) -> &'q str {
        &query[self.start..self.end]
    }

    /// Names the token in an error message.
    pub(super) fn describe(&self, query: &str) -> String {
        let text = self.text(query);
        match self.kind {
            TokenKind::EndOfInput => "end of input".to_owned(),
            TokenKind::Keyword(_) => format!("<{text}>"),
            TokenKind::Operator(_) | TokenKind::EqualRegexp | TokenKind::NotEqualRegexp | TokenKind::At => {
                format!("<op:{text}>")
            }
            TokenKind::Aggregate(_) => format!("<aggr:{text}>"),
            TokenKind::Identifier => format!("identifier {}", quote::quoted(text)),
            TokenKind::MetricIdentifier => format!("metric identifier {}", quote::quoted(text)),
            TokenKind::Number => format!("number {}", shortened(text)),
            TokenKind::Duration => format!("duration {}", shortened(text)),
            TokenKind::String => format!("string {}", shortened(text)),
            _ => shortened(text),
        }
    }
}

/// Quotes a text, only its first characters if it is long.
fn shortened(text: &str) -> String {
    if text.len() <= SHORTENED_LEN {
        return quote::quoted(text);
    }
    let end = text.char_indices().nth(SHORTENED_LEN).map_or(text.len(), |(at, _)| at);
    let mut quoted = quote::quoted(&text[..end]);
    let _ = write!(quoted, "...");
    quoted
}

fn keyword(lower: &[u8]) -> Option<TokenKind> {
    use TokenKind::{Aggregate, Keyword as Word, Operator};
    let preprocessor = TokenKind::Preprocessor;
    Some(match lower {
        b"and" => Operator(BinaryOp::And),
        b"or" => Operator(BinaryOp::Or),
        b"unless" => Operator(BinaryOp::Unless),
        b"atan2" => Operator(BinaryOp::Atan2),
        b"sum" => Aggregate(AggregateOp::Sum),
        b"avg" => Aggregate(AggregateOp::Avg),
        b"count" => Aggregate(AggregateOp::Count),
        b"min" => Aggregate(AggregateOp::Min),
        b"max" => Aggregate(AggregateOp::Max),
        b"group" => Aggregate(AggregateOp::Group),
        b"stddev" => Aggregate(AggregateOp::Stddev),
        b"stdvar" => Aggregate(AggregateOp::Stdvar),
        b"topk" => Aggregate(AggregateOp::Topk),
        b"bottomk" => Aggregate(AggregateOp::Bottomk),
        b"count_values" => Aggregate(AggregateOp::CountValues),
        b"quantile" => Aggregate(AggregateOp::Quantile),
        b"limitk" => Aggregate(AggregateOp::Limitk),
        b"limit_ratio" => Aggregate(AggregateOp::LimitRatio),
        b"offset" => Word(Keyword::Offset),
        b"smoothed" => Word(Keyword::Smoothed),
        b"anchored" => Word(Keyword::Anchored),
        b"by" => Word(Keyword::By),
        b"without" => Word(Keyword::Without),
        b"on" => Word(Keyword::On),
        b"ignoring" => Word(Keyword::Ignoring),
        b"group_left" => Word(Keyword::GroupLeft),
        b"group_right" => Word(Keyword::GroupRight),
        b"fill" => Word(Keyword::Fill),
        b"fill_left" => Word(Keyword::FillLeft),
        b"fill_right" => Word(Keyword::FillRight),
        b"bool" => Word(Keyword::Bool),
        b"start" => preprocessor(Preprocessor::Start),
        b"end" => preprocessor(Preprocessor::End),
        b"step" => preprocessor(Preprocessor::Step),
        b"range" => preprocessor(Preprocessor::Range),
        b"max_of" => preprocessor(Preprocessor::MaxOf),
        b"min_of" => preprocessor(Preprocessor::MinOf),
        b"inf" | b"nan" => TokenKind::Number,
        _ => return None,
    })
}

/// The length of `count_values`.
const KEYWORD_SIZE_MAX: usize = 12;

/// How many characters of a long token an error message shows.
const SHORTENED_LEN: usize = 10;
