//! The syntax tree of a template. Nodes print as in Go's error messages.

use std::fmt::{self, Display};

use varve_promql::number;
use varve_promql::quote::quoted;

/// Text or an action.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) start: usize,
    pub(crate) kind: NodeKind,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Text(String),
    Action(Pipe),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template {
        name: String,
        pipe: Option<Pipe>,
    },
    Break,
    Continue,
    /// Ends a list. Not part of the tree.
    End,
    /// Ends a list. Not part of the tree.
    Else,
}

/// An `if`, `with` or `range`.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) pipe: Pipe,
    pub(crate) list: Vec<Node>,
    pub(crate) otherwise: Option<Vec<Node>>,
}

/// A pipeline.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) start: usize,
    /// `true` if the variables exist already.
    pub(crate) assigns: bool,
    pub(crate) variables: Vec<String>,
    pub(crate) commands: Vec<Command>,
}

/// A command of a pipeline: a function or value, and arguments.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) start: usize,
    pub(crate) args: Vec<Operand>,
}

/// An argument.
#[derive(Debug)]
pub(crate) struct Operand {
    pub(crate) start: usize,
    pub(crate) kind: OperandKind,
}

#[derive(Debug)]
pub(crate) enum OperandKind {
    Function(String),
    Dot,
    Nil,
    /// The name with its `$`, and fields.
    Variable(String, Vec<String>),
    Field(Vec<String>),
    Chain(Box<Operand>, Vec<String>),
    Pipe(Pipe),
    Bool(bool),
    Number(Number),
    String {
        literal: String,
        value: String,
    },
}

/// A number literal, in all types that can represent it.
#[derive(Debug)]
pub(crate) struct Number {
    pub(crate) text: String,
    pub(crate) int: Option<i64>,
    pub(crate) float: Option<f64>,
}

impl Number {
    /// Parses a literal.
    ///
    /// # Errors
    /// Go's message. Complex numbers are not supported.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.ends_with('i') {
            return Err(format!(
                "complex numbers are not supported: {}",
                quoted(text)
            ));
        }
        let literal = |int, float| {
            Ok(Self {
                text: text.to_owned(),
                int,
                float,
            })
        };
        let (sign, digits) = match text.strip_prefix(['+', '-']) {
            Some(digits) => (&text[..1], digits),
            None => ("", text),
        };
        let (radix, digits) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
            [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
            [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
            [b'0', _, ..] => (8, &digits[1..]),
            _ => (10, digits),
        };
        let plain = digits.replace('_', "");
        if let Ok(int) = i64::from_str_radix(&format!("{sign}{plain}"), radix) {
            return literal(Some(int), Some(int as f64));
        }
        if sign.is_empty()
            && let Ok(unsigned) = u64::from_str_radix(&plain, radix)
        {
            return literal(None, Some(unsigned as f64));
        }
        match number::parse_float(text) {
            Ok(_) if !text.contains(['.', 'e', 'E', 'p', 'P']) => {
                Err(format!("integer overflow: {}", quoted(text)))
            }
            Ok(float) if float.is_finite() => {
                let float = if sign == "-" { -f64::abs(float) } else { float };
                let int = float as i64;
                literal((int as f64 == float).then_some(int), Some(float))
            }
            _ => Err(format!("illegal number syntax: {}", quoted(text))),
        }
    }

    /// Returns `true` if the literal is a float where any type is allowed.
    pub(crate) fn is_float_literal(&self) -> bool {
        let text = self
            .text
            .trim_start_matches(['+', '-'])
            .to_ascii_lowercase();
        let is_hex = text.starts_with("0x") && !text.contains('p');
        !is_hex && !self.text.starts_with('\'') && self.text.contains(['.', 'e', 'E', 'p', 'P'])
    }
}

impl Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            NodeKind::Text(text) => f.write_str(text),
            NodeKind::Action(pipe) => write!(f, "{{{{{pipe}}}}}"),
            NodeKind::If(branch) => branch.write(f, "if"),
            NodeKind::With(branch) => branch.write(f, "with"),
            NodeKind::Range(branch) => branch.write(f, "range"),
            NodeKind::Template { name, pipe: None } => {
                write!(f, "{{{{template {}}}}}", quoted(name))
            }
            NodeKind::Template {
                name,
                pipe: Some(pipe),
            } => write!(f, "{{{{template {} {pipe}}}}}", quoted(name)),
            NodeKind::Break => f.write_str("{{break}}"),
            NodeKind::Continue => f.write_str("{{continue}}"),
            NodeKind::End => f.write_str("{{end}}"),
            NodeKind::Else => f.write_str("{{else}}"),
        }
    }
}

impl Branch {
    fn write(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        write!(f, "{{{{{name} {}}}}}", self.pipe)?;
        self.list.iter().try_for_each(|node| node.fmt(f))?;
        if let Some(otherwise) = &self.otherwise {
            f.write_str("{{else}}")?;
            otherwise.iter().try_for_each(|node| node.fmt(f))?;
        }
        f.write_str("{{end}}")
    }
}

impl Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let operator = if self.assigns { "=" } else { ":=" };
            write!(f, "{} {operator} ", self.variables.join(", "))?;
        }
        write_list(f, &self.commands, " | ")
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_list(f, &self.args, " ")
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, items: &[impl Display], separator: &str) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        f.write_str(if i > 0 { separator } else { "" })?;
        item.fmt(f)?;
    }
    Ok(())
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[String]) -> fmt::Result {
    for field in fields {
        write!(f, ".{field}")?;
    }
    Ok(())
}

impl Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OperandKind::Function(name) => f.write_str(name),
            OperandKind::Dot => f.write_str("."),
            OperandKind::Nil => f.write_str("nil"),
            OperandKind::Variable(name, names) => {
                f.write_str(name)?;
                write_fields(f, names)
            }
            OperandKind::Field(names) => write_fields(f, names),
            OperandKind::Chain(operand, names) => {
                operand.fmt(f)?;
                write_fields(f, names)
            }
            OperandKind::Pipe(pipe) => write!(f, "({pipe})"),
            OperandKind::Bool(value) => value.fmt(f),
            OperandKind::Number(number) => f.write_str(&number.text),
            OperandKind::String { literal, .. } => f.write_str(literal),
        }
    }
}
