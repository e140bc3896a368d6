//! Parses a template. Errors are those of Go's `text/template`.

use std::collections::BTreeMap;

use varve_promql::quote::{quoted, unquote};

use super::functions;
use super::lex::{Keyword, Kind, Lexer, SPACES, Token};
use super::node::{Branch, Command, Node, NodeKind, Number, Operand, OperandKind, Pipe};

/// Maximum nesting of actions and parentheses.
pub(crate) const NESTING_MAX: usize = 100;

/// The templates of a text by name. The text itself has the name that the parser was given.
pub(crate) type Trees = BTreeMap<String, Vec<Node>>;

type Result<T> = std::result::Result<T, String>;

/// Parses a text and the templates that it defines.
///
/// # Errors
/// `template: NAME:LINE: MESSAGE`.
pub(crate) fn parse(name: &str, text: &str) -> Result<Trees> {
    let mut parser = Parser {
        name,
        text,
        lexer: Lexer::new(text),
        last_start: 0,
        ahead: Vec::new(),
        nesting: 0,
        trees: Trees::new(),
        scope: Scope::default(),
    };
    let root = parser.root()?;
    parser.add(name.to_owned(), root)?;
    Ok(parser.trees)
}

struct Parser<'a> {
    name: &'a str,
    text: &'a str,
    lexer: Lexer<'a>,
    /// Start of the token that was read last, for the lines of errors.
    last_start: usize,
    /// Tokens to be read again, the next one last.
    ahead: Vec<Token<'a>>,
    nesting: usize,
    trees: Trees,
    scope: Scope,
}

/// State that a definition does not share with the text around it.
struct Scope {
    variables: Vec<String>,
    range_depth: usize,
    /// Start of the current action.
    action_start: Option<usize>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            variables: vec!["$".to_owned()],
            range_depth: 0,
            action_start: None,
        }
    }
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        self.ahead.pop().unwrap_or_else(|| {
            let token = self.lexer.next();
            self.last_start = token.start;
            token
        })
    }

    fn peek(&mut self) -> &Token<'a> {
        let token = self.next();
        self.ahead.push(token);
        self.ahead.last().expect("a token was pushed")
    }

    fn next_non_space(&mut self) -> Token<'a> {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> &Token<'a> {
        let token = self.next_non_space();
        self.ahead.push(token);
        self.ahead.last().expect("a token was pushed")
    }

    fn line(&self, start: usize) -> usize {
        1 + self.text.as_bytes()[..start]
            .iter()
            .filter(|&&b| b == b'\n')
            .count()
    }

    fn error<T>(&self, message: impl AsRef<str>) -> Result<T> {
        Err(format!(
            "template: {}:{}: {}",
            self.name,
            self.line(self.last_start),
            message.as_ref()
        ))
    }

    fn unexpected<T>(&self, token: &Token<'_>, context: &str) -> Result<T> {
        if token.kind != Kind::Error {
            return self.error(format!("unexpected {token} in {context}"));
        }
        let started = self.scope.action_start.map(|start| self.line(start));
        let started = started.filter(|&line| line != self.line(token.start));
        let what = if token.text.ends_with(" action") {
            ""
        } else {
            " in action"
        };
        let extra = started.map(|line| format!("{what} started at {}:{line}", self.name));
        self.error(format!("{token}{}", extra.unwrap_or_default()))
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Result<Token<'a>> {
        let token = self.next_non_space();
        if token.kind == kind {
            Ok(token)
        } else {
            self.unexpected(&token, context)
        }
    }

    /// Runs a parser one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.nesting == NESTING_MAX {
            return self.error(format!(
                "more than {NESTING_MAX} nested actions and parentheses"
            ));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    fn add(&mut self, name: String, tree: Vec<Node>) -> Result<()> {
        if self.trees.get(&name).is_none_or(|old| is_empty(old)) {
            self.trees.insert(name, tree);
        } else if !is_empty(&tree) {
            return self.error(format!(
                "template: multiple definition of template {}",
                quoted(name)
            ));
        }
        Ok(())
    }

    fn root(&mut self) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            match self.peek().kind {
                Kind::End => return Ok(nodes),
                Kind::LeftDelim => {
                    let delim = self.next();
                    if self.peek_non_space().kind == Kind::Keyword(Keyword::Define) {
                        self.next_non_space();
                        self.definition()?;
                        continue;
                    }
                    self.ahead.push(delim);
                }
                _ => {}
            }
            let node = self.text_or_action()?;
            if matches!(node.kind, NodeKind::End | NodeKind::Else) {
                return self.error(format!("unexpected {node}"));
            }
            nodes.push(node);
        }
    }

    fn definition(&mut self) -> Result<()> {
        let token = self.next_non_space();
        let outer = std::mem::take(&mut self.scope);
        let name = self.template_name(&token, "define clause")?;
        self.expect(Kind::RightDelim, "define clause")?;
        self.body(name, "define clause")?;
        self.scope = outer;
        Ok(())
    }

    /// Parses and adds the body of a definition.
    fn body(&mut self, name: String, context: &str) -> Result<()> {
        let (list, end) = self.list()?;
        if !matches!(end.kind, NodeKind::End) {
            return self.error(format!("unexpected {end} in {context}"));
        }
        self.add(name, list)
    }

    /// Parses up to an `end` or `else`.
    fn list(&mut self) -> Result<(Vec<Node>, Node)> {
        let mut nodes = Vec::new();
        while self.peek_non_space().kind != Kind::End {
            let node = self.text_or_action()?;
            if matches!(node.kind, NodeKind::End | NodeKind::Else) {
                return Ok((nodes, node));
            }
            nodes.push(node);
        }
        self.error("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Result<Node> {
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => Ok(Node {
                start: token.start,
                kind: NodeKind::Text(token.text.into_owned()),
            }),
            Kind::LeftDelim => {
                self.scope.action_start = Some(token.start);
                let node = self.nested(Self::action);
                if node.is_ok() {
                    self.scope.action_start = None;
                }
                node
            }
            _ => self.unexpected(&token, "input"),
        }
    }

    fn action(&mut self) -> Result<Node> {
        let token = self.next_non_space();
        let start = token.start;
        match token.kind {
            Kind::Keyword(Keyword::Block) => self.block(),
            Kind::Keyword(Keyword::Break) => self.jump(start, NodeKind::Break),
            Kind::Keyword(Keyword::Continue) => self.jump(start, NodeKind::Continue),
            Kind::Keyword(Keyword::Else) => {
                let start = self.peek_non_space().start;
                if !matches!(
                    self.peek_non_space().kind,
                    Kind::Keyword(Keyword::If | Keyword::With)
                ) {
                    self.expect(Kind::RightDelim, "else")?;
                }
                Ok(Node {
                    start,
                    kind: NodeKind::Else,
                })
            }
            Kind::Keyword(Keyword::End) => Ok(Node {
                start: self.expect(Kind::RightDelim, "end")?.start,
                kind: NodeKind::End,
            }),
            Kind::Keyword(keyword @ (Keyword::If | Keyword::Range | Keyword::With)) => {
                self.branch(keyword)
            }
            Kind::Keyword(Keyword::Template) => self.template(),
            _ => {
                self.ahead.push(token);
                let pipe = self.pipeline("command", Kind::RightDelim)?;
                Ok(Node {
                    start,
                    kind: NodeKind::Action(pipe),
                })
            }
        }
    }

    fn jump(&mut self, start: usize, kind: NodeKind) -> Result<Node> {
        let node = Node { start, kind };
        let token = self.next_non_space();
        if token.kind != Kind::RightDelim {
            return self.unexpected(&token, &node.to_string());
        }
        if self.scope.range_depth == 0 {
            return self.error(format!("{node} outside {{{{range}}}}"));
        }
        Ok(node)
    }

    fn branch(&mut self, keyword: Keyword) -> Result<Node> {
        let n_variables = self.scope.variables.len();
        let (context, in_range) = match keyword {
            Keyword::If => ("if", 0),
            Keyword::With => ("with", 0),
            _ => ("range", 1),
        };
        let pipe = self.pipeline(context, Kind::RightDelim)?;
        self.scope.range_depth += in_range;
        let (list, end) = self.list()?;
        self.scope.range_depth -= in_range;
        let mut otherwise = None;
        if matches!(end.kind, NodeKind::Else) {
            let chained = in_range == 0 && self.peek().kind == Kind::Keyword(keyword);
            if chained {
                self.next();
                otherwise = Some(vec![self.nested(|parser| parser.branch(keyword))?]);
            } else {
                let (list, end) = self.list()?;
                if !matches!(end.kind, NodeKind::End) {
                    return self.error(format!("expected end; found {end}"));
                }
                otherwise = Some(list);
            }
        }
        self.scope.variables.truncate(n_variables);
        let start = pipe.start;
        let branch = Branch {
            pipe,
            list,
            otherwise,
        };
        let kind = match keyword {
            Keyword::If => NodeKind::If(branch),
            Keyword::With => NodeKind::With(branch),
            _ => NodeKind::Range(branch),
        };
        Ok(Node { start, kind })
    }

    fn block(&mut self) -> Result<Node> {
        let token = self.next_non_space();
        let name = self.template_name(&token, "block clause")?;
        let pipe = Some(self.pipeline("block clause", Kind::RightDelim)?);
        let outer = std::mem::take(&mut self.scope);
        self.body(name.clone(), "block clause")?;
        self.scope = outer;
        Ok(Node {
            start: token.start,
            kind: NodeKind::Template { name, pipe },
        })
    }

    fn template(&mut self) -> Result<Node> {
        let token = self.next_non_space();
        let name = self.template_name(&token, "template clause")?;
        let next = self.next_non_space();
        let mut pipe = None;
        if next.kind != Kind::RightDelim {
            self.ahead.push(next);
            pipe = Some(self.pipeline("template clause", Kind::RightDelim)?);
        }
        Ok(Node {
            start: token.start,
            kind: NodeKind::Template { name, pipe },
        })
    }

    fn template_name(&mut self, token: &Token<'_>, context: &str) -> Result<String> {
        if token.kind == Kind::String {
            self.unquoted(&token.text)
        } else {
            self.unexpected(token, context)
        }
    }

    fn unquoted(&self, literal: &str) -> Result<String> {
        match unquote(literal) {
            Some(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            None => self.error("invalid syntax"),
        }
    }

    fn pipeline(&mut self, context: &str, end: Kind) -> Result<Pipe> {
        let start = self.peek_non_space().start;
        let mut pipe = Pipe {
            start,
            assigns: false,
            variables: Vec::new(),
            commands: Vec::new(),
        };
        while self.peek_non_space().kind == Kind::Variable {
            if !self.declaration(context, &mut pipe)? {
                break;
            }
        }
        loop {
            let token = self.next_non_space();
            if token.kind == end {
                self.check_pipeline(&pipe, context)?;
                return Ok(pipe);
            }
            if !starts_operand(token.kind) {
                return self.unexpected(&token, context);
            }
            self.ahead.push(token);
            let command = self.command()?;
            pipe.commands.push(command);
        }
    }

    /// Reads a variable that is declared or assigned. Returns `true` if another one may follow.
    fn declaration(&mut self, context: &str, pipe: &mut Pipe) -> Result<bool> {
        let variable = self.next();
        let after = self.next();
        let next = if after.kind == Kind::Space {
            self.next_non_space()
        } else {
            after.clone()
        };
        let is_comma = next.kind == Kind::Char && next.text == ",";
        if !is_comma && !matches!(next.kind, Kind::Assign | Kind::Declare) {
            self.ahead.push(next);
            if after.kind == Kind::Space {
                self.ahead.push(after);
            }
            self.ahead.push(variable);
            return Ok(false);
        }
        pipe.variables.push(variable.text.clone().into_owned());
        self.scope.variables.push(variable.text.into_owned());
        if !is_comma {
            pipe.assigns = next.kind == Kind::Assign;
            return Ok(false);
        }
        if context == "range" && pipe.variables.len() < 2 {
            return match self.peek_non_space().kind {
                Kind::Variable | Kind::RightDelim | Kind::RightParen => Ok(true),
                _ => self.error("range can only initialize variables"),
            };
        }
        self.error(format!("too many declarations in {context}"))
    }

    fn check_pipeline(&self, pipe: &Pipe, context: &str) -> Result<()> {
        if pipe.commands.is_empty() {
            return self.error(format!("missing value for {context}"));
        }
        match pipe.commands.iter().skip(1).position(|command| {
            use OperandKind::{Bool, Dot, Nil, Number, String};
            matches!(
                command.args[0].kind,
                Bool(_) | Dot | Nil | Number(_) | String { .. }
            )
        }) {
            Some(i) => self.error(format!(
                "non executable command in pipeline stage {}",
                i + 2
            )),
            None => Ok(()),
        }
    }

    fn command(&mut self) -> Result<Command> {
        let start = self.peek_non_space().start;
        let mut args = Vec::new();
        loop {
            self.peek_non_space();
            args.extend(self.operand()?);
            let token = self.next();
            match token.kind {
                Kind::Space => continue,
                Kind::RightDelim | Kind::RightParen => self.ahead.push(token),
                Kind::Pipe => {}
                _ => return self.unexpected(&token, "operand"),
            }
            break;
        }
        if args.is_empty() {
            return self.error("empty command");
        }
        Ok(Command { start, args })
    }

    /// Parses a term and the fields after it. Returns `None` if the next token starts none.
    fn operand(&mut self) -> Result<Option<Operand>> {
        let Some(term) = self.term()? else {
            return Ok(None);
        };
        if self.peek().kind != Kind::Field {
            return Ok(Some(term));
        }
        let start = self.peek().start;
        let mut fields = Vec::new();
        while self.peek().kind == Kind::Field {
            fields.push(self.next().text[1..].to_owned());
        }
        let kind = match term.kind {
            OperandKind::Field(first) => OperandKind::Field([first, fields].concat()),
            OperandKind::Variable(name, _) => OperandKind::Variable(name, fields),
            OperandKind::Function(_) | OperandKind::Pipe(_) | OperandKind::Chain(..) => {
                OperandKind::Chain(Box::new(term), fields)
            }
            _ => {
                return self.error(format!(
                    "unexpected . after term {}",
                    quoted(term.to_string())
                ));
            }
        };
        Ok(Some(Operand { start, kind }))
    }

    fn term(&mut self) -> Result<Option<Operand>> {
        let token = self.next_non_space();
        let text = &*token.text;
        let kind = match token.kind {
            Kind::Identifier if functions::signature(text).is_none() => {
                return self.error(format!("function {} not defined", quoted(text)));
            }
            Kind::Identifier => OperandKind::Function(text.to_owned()),
            Kind::Keyword(Keyword::Dot) => OperandKind::Dot,
            Kind::Keyword(Keyword::Nil) => OperandKind::Nil,
            Kind::Variable if !self.scope.variables.iter().any(|name| name == text) => {
                return self.error(format!("undefined variable {}", quoted(text)));
            }
            Kind::Variable => OperandKind::Variable(text.to_owned(), Vec::new()),
            Kind::Field => OperandKind::Field(vec![text[1..].to_owned()]),
            Kind::Bool => OperandKind::Bool(text == "true"),
            Kind::CharConstant => OperandKind::Number(self.character(text)?),
            Kind::Number => {
                OperandKind::Number(Number::parse(text).or_else(|message| self.error(message))?)
            }
            Kind::LeftParen => {
                let context = "parenthesized pipeline";
                OperandKind::Pipe(self.nested(|parser| parser.pipeline(context, Kind::RightParen))?)
            }
            Kind::String => OperandKind::String {
                value: self.unquoted(text)?,
                literal: text.to_owned(),
            },
            _ => {
                self.ahead.push(token);
                return Ok(None);
            }
        };
        let start = if let OperandKind::Pipe(pipe) = &kind {
            pipe.start
        } else {
            token.start
        };
        Ok(Some(Operand { start, kind }))
    }

    fn character(&self, literal: &str) -> Result<Number> {
        let value = self.unquoted(literal)?;
        let mut chars = value.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => {
                let code = i64::from(u32::from(c));
                Ok(Number {
                    text: literal.to_owned(),
                    int: Some(code),
                    float: Some(code as f64),
                })
            }
            _ => self.error(format!("malformed character constant: {literal}")),
        }
    }
}

fn starts_operand(kind: Kind) -> bool {
    use Kind::{Bool, CharConstant, Field, Identifier, LeftParen, Number, String, Variable};
    matches!(
        kind,
        Bool | CharConstant | Field | Identifier | LeftParen | Number | String | Variable
    ) || matches!(kind, Kind::Keyword(Keyword::Dot | Keyword::Nil))
}

/// Returns `true` if a template contains only white space.
fn is_empty(nodes: &[Node]) -> bool {
    nodes.iter().all(
        |node| matches!(&node.kind, NodeKind::Text(text) if text.trim_matches(SPACES).is_empty()),
    )
}
