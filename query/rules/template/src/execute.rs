//! Executes a template. Errors are those of Go's `text/template`.

use std::fmt::Display;
use std::rc::Rc;

use varve_context::Charge;
use varve_promql::quote::quoted;

use super::environment::Environment;
use super::functions::{self, Signature};
use super::limits::{BYTES_PER_STEP, DEPTH_MAX, OUTPUT_SIZE_MAX, SIZE_MAX, STEPS_MAX};
use super::node::{Branch, Command, Node, NodeKind, Number, Operand, OperandKind, Pipe};
use super::parse::Trees;
use super::value::{Type, Value};
use super::{builtins, methods, print, time};

type Result<T> = std::result::Result<T, String>;

/// Steps between two checks of the deadline.
const STEPS_PER_CHECK: usize = 1024;
/// Bytes that a function may take for a byte of its arguments: a quoted byte has up to six, and is
/// copied.
const COPIES: usize = 12;

/// Executes the template `name`, with `data` as `.` and `$`, and returns its output.
pub(crate) fn execute(
    name: &str,
    text: &str,
    trees: &Trees,
    environment: &Environment<'_>,
    data: Value,
) -> Result<String> {
    let root = trees
        .get(name)
        .ok_or_else(|| format!("template: {name}: no such template"))?;
    let mut execution = Execution {
        parse_name: name,
        text,
        trees,
        environment,
        template: name,
        variables: vec![("$", data.clone())],
        at: None,
        depth: 0,
        n_steps: 0,
        size: 0,
        out: String::new(),
        charge: environment.ctx.charge(),
    };
    execution.list(&data, root)?;
    Ok(execution.out)
}

/// One execution of a template.
struct Execution<'a> {
    parse_name: &'a str,
    text: &'a str,
    trees: &'a Trees,
    environment: &'a Environment<'a>,
    /// The template that is being executed.
    template: &'a str,
    variables: Vec<(&'a str, Value)>,
    /// The node that an error is about, and its byte offset.
    at: Option<Part<'a>>,
    depth: usize,
    n_steps: usize,
    /// Bytes of all values that were created.
    size: usize,
    out: String,
    /// Covers the values and the output.
    charge: Charge,
}

/// A part of the tree, and its byte offset in the template.
type Part<'a> = (usize, &'a dyn Display);

/// The way in which a list ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl<'a> Execution<'a> {
    fn error<T>(&self, message: impl Display) -> Result<T> {
        let Some((start, node)) = self.at else {
            return Err(format!("template: {}: {message}", self.parse_name));
        };
        let before = &self.text[..start];
        let line = 1 + before.matches('\n').count();
        let column = before
            .rfind('\n')
            .map_or(before.len(), |newline| before.len() - newline - 1);
        let template = quoted(self.template);
        Err(format!(
            "template: {}:{line}:{column}: executing {template} at <{node}>: {message}",
            self.parse_name
        ))
    }

    fn step(&mut self) -> Result<()> {
        self.count_steps(1)
    }

    fn count_steps(&mut self, n_steps: usize) -> Result<()> {
        let n_checks = self.n_steps / STEPS_PER_CHECK;
        self.n_steps += n_steps;
        if self.n_steps > STEPS_MAX {
            return self.error(format_args!("more than {STEPS_MAX} steps"));
        }
        if self.n_steps / STEPS_PER_CHECK > n_checks
            && let Err(error) = self.environment.ctx.check()
        {
            return self.error(error);
        }
        Ok(())
    }

    /// Counts the steps for the texts of a call, besides that of the call itself. Reserves the
    /// memory that the function takes for them, until the returned charge is dropped.
    fn reserve(&mut self, name: &str, values: &[Value]) -> Result<Charge> {
        let n_bytes = functions::text_size_max(name, values);
        self.count_steps(n_bytes / BYTES_PER_STEP)?;
        let mut charge = self.environment.ctx.charge();
        match charge.grow_without_waiting(COPIES * n_bytes) {
            Ok(()) => Ok(charge),
            Err(error) => self.error(error),
        }
    }

    /// Returns the text of a value.
    fn printed(&mut self, value: Value) -> Result<String> {
        let values = [value];
        let _room = self.reserve("print", &values)?;
        Ok(print::sprint(&[builtins::printable(&values[0])]))
    }

    /// Counts a new value.
    fn created(&mut self, value: Value) -> Result<Value> {
        let size = value.size();
        self.size += size;
        if self.size > SIZE_MAX {
            return self.error(format_args!("values of more than {SIZE_MAX} bytes"));
        }
        self.grow(size)?;
        Ok(value)
    }

    fn write(&mut self, text: &str) -> Result<()> {
        if self.out.len() + text.len() > OUTPUT_SIZE_MAX {
            return self.error(format_args!("output of more than {OUTPUT_SIZE_MAX} bytes"));
        }
        self.grow(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn grow(&mut self, size: usize) -> Result<()> {
        match self.charge.grow_without_waiting(size) {
            Ok(()) => Ok(()),
            Err(error) => self.error(error),
        }
    }

    fn nested<T>(&mut self, execute: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            return self.error(format_args!(
                "exceeded maximum template depth ({DEPTH_MAX})"
            ));
        }
        self.depth += 1;
        let result = execute(self);
        self.depth -= 1;
        result
    }

    fn list(&mut self, dot: &Value, nodes: &'a [Node]) -> Result<Flow> {
        for node in nodes {
            self.step()?;
            let flow = self.nested(|execution| execution.node(dot, node))?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Value, node: &'a Node) -> Result<Flow> {
        self.at = Some((node.start, node));
        match &node.kind {
            NodeKind::Text(text) => self.write(text)?,
            NodeKind::Action(pipe) => {
                let value = self.pipe(dot, pipe)?;
                if pipe.variables.is_empty() {
                    self.at = Some((node.start, node));
                    let text = self.printed(value)?;
                    self.write(&text)?;
                }
            }
            NodeKind::If(branch) => return self.condition(dot, branch, false),
            NodeKind::With(branch) => return self.condition(dot, branch, true),
            NodeKind::Range(branch) => return self.range(dot, branch),
            NodeKind::Template { name, pipe } => self.template(dot, name, pipe.as_ref())?,
            NodeKind::Break => return Ok(Flow::Break),
            NodeKind::Continue => return Ok(Flow::Continue),
            NodeKind::End | NodeKind::Else => {}
        }
        Ok(Flow::Next)
    }

    fn condition(&mut self, dot: &Value, branch: &'a Branch, sets_dot: bool) -> Result<Flow> {
        let n_variables = self.variables.len();
        let value = self.pipe(dot, &branch.pipe)?;
        let flow = match (value.is_true(), &branch.otherwise) {
            (true, _) => self.list(if sets_dot { &value } else { dot }, &branch.list)?,
            (false, Some(otherwise)) => self.list(dot, otherwise)?,
            (false, None) => Flow::Next,
        };
        self.variables.truncate(n_variables);
        Ok(flow)
    }

    fn range(&mut self, dot: &Value, branch: &'a Branch) -> Result<Flow> {
        let n_variables = self.variables.len();
        let value = self.pipe(dot, &branch.pipe)?;
        let mut is_empty = true;
        for i in 0.. {
            let (index, element) = match &value {
                Value::Int(_) | Value::Int64(_) | Value::Byte(_) | Value::Duration(_)
                    if branch.pipe.variables.len() > 1 =>
                {
                    let text = self.printed(value.clone())?;
                    return self.error(format_args!(
                        "can't use {text} to iterate over more than one variable"
                    ));
                }
                Value::Int(n) | Value::Int64(n) if i < *n => (Value::Nil, Value::Int(i)),
                Value::Byte(n) if i < i64::from(*n) => (Value::Nil, Value::Byte(i as u8)),
                Value::Duration(time::Duration { nanos, .. }) if i < *nanos => (
                    Value::Nil,
                    Value::Duration(time::Duration {
                        nanos: i,
                        is_pointer: false,
                    }),
                ),
                Value::Vector(samples) if (i as usize) < samples.len() => (
                    Value::Int(i),
                    Value::Sample(samples[i as usize].clone().into()),
                ),
                Value::Labels(labels) => match labels.iter().nth(i as usize) {
                    Some((name, text)) => (Value::string(name), Value::string(text)),
                    None => break,
                },
                Value::Args(args) if (i as usize) < args.values.len() => (
                    Value::string(format!("arg{i}")),
                    args.values[i as usize].clone(),
                ),
                Value::Int(_) | Value::Int64(_) | Value::Byte(_) | Value::Duration(_) => break,
                Value::Nil | Value::Vector(_) | Value::Args(_) => break,
                other => {
                    let text = self.printed(other.clone())?;
                    return self.error(format_args!("range can't iterate over {text}"));
                }
            };
            self.step()?;
            is_empty = false;
            if self.iteration(&branch.pipe, &branch.list, index, element)? == Flow::Break {
                break;
            }
        }
        let flow = match &branch.otherwise {
            Some(otherwise) if is_empty => self.list(dot, otherwise)?,
            _ => Flow::Next,
        };
        self.variables.truncate(n_variables);
        Ok(flow)
    }

    fn iteration(
        &mut self,
        pipe: &'a Pipe,
        list: &'a [Node],
        index: Value,
        element: Value,
    ) -> Result<Flow> {
        let mark = self.variables.len();
        let values = match pipe.variables.len() {
            2 => vec![index, element.clone()],
            n => vec![element.clone(); n],
        };
        if pipe.assigns {
            pipe.variables
                .iter()
                .zip(values)
                .try_for_each(|(name, value)| self.assign(name, value))?;
        } else {
            let declared = self.variables[mark - values.len()..].iter_mut();
            for ((_, variable), value) in declared.zip(values) {
                *variable = value;
            }
        }
        let flow = self.list(&element, list)?;
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn assign(&mut self, name: &str, value: Value) -> Result<()> {
        match self
            .variables
            .iter_mut()
            .rev()
            .find(|(variable, _)| *variable == name)
        {
            Some((_, variable)) => *variable = value,
            None => return self.error(format_args!("undefined variable: {name}")),
        }
        Ok(())
    }

    fn template(&mut self, dot: &Value, name: &'a str, pipe: Option<&'a Pipe>) -> Result<()> {
        let Some(tree) = self.trees.get(name) else {
            return self.error(format_args!("template {} not defined", quoted(name)));
        };
        let dot = pipe.map_or(Ok(Value::Nil), |pipe| self.pipe(dot, pipe))?;
        let outer = (
            self.template,
            std::mem::replace(&mut self.variables, vec![("$", dot.clone())]),
        );
        self.template = name;
        self.list(&dot, tree)?;
        (self.template, self.variables) = outer;
        Ok(())
    }

    fn pipe(&mut self, dot: &Value, pipe: &'a Pipe) -> Result<Value> {
        self.at = Some((pipe.start, pipe));
        let mut value = None;
        for command in &pipe.commands {
            self.step()?;
            value = Some(self.nested(|run| run.command(dot, command, value))?);
        }
        let value = value.unwrap_or(Value::Nil);
        for name in &pipe.variables {
            if pipe.assigns {
                self.assign(name, value.clone())?;
            } else {
                self.variables.push((name.as_str(), value.clone()));
            }
        }
        Ok(value)
    }

    /// Evaluates a command. `last` is the value of the command before it.
    fn command(&mut self, dot: &Value, command: &'a Command, last: Option<Value>) -> Result<Value> {
        let (first, args) = command
            .args
            .split_first()
            .expect("a command has an operand");
        match &first.kind {
            OperandKind::Function(name) => {
                return self.function(dot, first, (command.start, command), name, args, last);
            }
            OperandKind::Field(_) | OperandKind::Chain(..) => {
                return self.fields(dot, first, args, last);
            }
            OperandKind::Variable(_, fields) if !fields.is_empty() => {
                return self.fields(dot, first, args, last);
            }
            OperandKind::Pipe(_) => {}
            _ => self.at = Some((first.start, first)),
        }
        if !args.is_empty() || last.is_some() {
            return self.error(format_args!("can't give argument to non-function {first}"));
        }
        match &first.kind {
            OperandKind::Nil => self.error("nil is not a command"),
            _ => self.operand(dot, first),
        }
    }

    /// Evaluates an operand where any type is allowed.
    fn operand(&mut self, dot: &Value, operand: &'a Operand) -> Result<Value> {
        match &operand.kind {
            OperandKind::Dot => Ok(dot.clone()),
            OperandKind::Nil => Ok(Value::Nil),
            OperandKind::Bool(value) => Ok(Value::Bool(*value)),
            OperandKind::String { value, .. } => Ok(Value::string(value.as_str())),
            OperandKind::Number(number) => {
                self.at = Some((operand.start, operand));
                self.number(number)
            }
            OperandKind::Pipe(pipe) => self.pipe(dot, pipe),
            OperandKind::Function(name) => {
                self.step()?;
                self.function(dot, operand, (operand.start, operand), name, &[], None)
            }
            OperandKind::Field(_) | OperandKind::Chain(..) | OperandKind::Variable(..) => {
                self.fields(dot, operand, &[], None)
            }
        }
    }

    fn number(&self, number: &Number) -> Result<Value> {
        match number {
            Number {
                float: Some(float), ..
            } if number.is_float_literal() => Ok(Value::Float(*float)),
            Number { int: Some(int), .. } => Ok(Value::Int(*int)),
            Number { text, .. } => self.error(format_args!("{text} overflows int")),
        }
    }

    fn function(
        &mut self,
        dot: &Value,
        operand: &'a Operand,
        whole: Part<'a>,
        name: &'a str,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Result<Value> {
        self.at = Some((operand.start, operand));
        let Some(signature) = functions::signature(name) else {
            return self.error(format_args!("{} is not a defined function", quoted(name)));
        };
        self.check_n_args(name, signature, args.len(), last.is_some())?;
        if matches!(name, "and" | "or") {
            return self.short_circuit(dot, name == "or", args, last);
        }
        let values = self.args(dot, signature, args, last)?;
        let _room = self.reserve(name, &values)?;
        self.called(
            whole,
            name,
            functions::call(self.environment, name, &values),
        )
    }

    /// Checks and counts the result of a call.
    fn called(&mut self, whole: Part<'a>, name: &str, result: Result<Value>) -> Result<Value> {
        match result {
            Ok(value) => self.created(value),
            Err(message) => {
                self.at = Some(whole);
                self.error(format_args!("error calling {name}: {message}"))
            }
        }
    }

    fn check_n_args(
        &self,
        name: &str,
        signature: Signature,
        n_args: usize,
        has_last: bool,
    ) -> Result<()> {
        let n = n_args + usize::from(has_last);
        let n_fixed = signature.fixed.len();
        match signature.variadic {
            Some(_) if n < n_fixed => self.error(format_args!(
                "wrong number of args for {name}: want at least {n_fixed} got {n_args}"
            )),
            None if n != n_fixed => self.error(format_args!(
                "wrong number of args for {name}: want {n_fixed} got {n}"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the first argument whose truth equals `stops`, else the last argument.
    fn short_circuit(
        &mut self,
        dot: &Value,
        stops: bool,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Result<Value> {
        let mut value = Value::Nil;
        for arg in args {
            value = self.arg(dot, Type::Reflect, arg)?;
            if value.is_true() == stops {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn args(
        &mut self,
        dot: &Value,
        signature: Signature,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Result<Vec<Value>> {
        let mut values = Vec::with_capacity(args.len() + 1);
        for (i, arg) in args.iter().enumerate() {
            let arg_type = signature
                .type_of(i)
                .expect("the number of arguments is checked");
            values.push(self.arg(dot, arg_type, arg)?);
        }
        if let Some(last) = last
            && let Some(arg_type) = signature.type_of(args.len())
        {
            match arg_type.convert(last) {
                Ok(value) => values.push(value),
                Err(message) => return self.error(message),
            }
        }
        Ok(values)
    }

    /// Evaluates an argument of a type.
    fn arg(&mut self, dot: &Value, arg_type: Type, arg: &'a Operand) -> Result<Value> {
        self.at = Some((arg.start, arg));
        match (&arg.kind, arg_type) {
            (OperandKind::Nil, _) if arg_type.has_nil() => Ok(Value::Nil),
            (OperandKind::Nil, _) => {
                self.error(format_args!("cannot assign nil to {}", arg_type.name()))
            }
            (
                OperandKind::Bool(_) | OperandKind::Number(_) | OperandKind::String { .. },
                Type::Any | Type::Reflect,
            ) => self.operand(dot, arg),
            (OperandKind::String { value, .. }, Type::String) => Ok(Value::string(value.as_str())),
            (OperandKind::Number(Number { int: Some(int), .. }), Type::Int) => Ok(Value::Int(*int)),
            (
                OperandKind::Number(Number {
                    int: Some(nanos), ..
                }),
                Type::Duration,
            ) => Ok(Value::Duration(time::Duration {
                nanos: *nanos,
                is_pointer: false,
            })),
            (OperandKind::Bool(_) | OperandKind::Number(_) | OperandKind::String { .. }, _) => {
                match arg_type {
                    Type::String => self.error(format_args!("expected string; found {arg}")),
                    Type::Int | Type::Duration => {
                        self.error(format_args!("expected integer; found {arg}"))
                    }
                    _ => self.error(format_args!(
                        "can't handle {arg} for arg of type {}",
                        arg_type.name()
                    )),
                }
            }
            _ => {
                let value = self.nested(|run| run.operand(dot, arg))?;
                arg_type
                    .convert(value)
                    .or_else(|message| self.error(message))
            }
        }
    }

    /// Evaluates a chain of fields. The last one may be a method with arguments.
    fn fields(
        &mut self,
        dot: &Value,
        node: &'a Operand,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Result<Value> {
        self.at = Some((node.start, node));
        let (mut value, fields) = match &node.kind {
            OperandKind::Field(fields) => (dot.clone(), fields),
            OperandKind::Variable(name, fields) => {
                match self
                    .variables
                    .iter()
                    .rev()
                    .find(|(variable, _)| variable == name)
                {
                    Some((_, value)) => (value.clone(), fields),
                    None => return self.error(format_args!("undefined variable: {name}")),
                }
            }
            OperandKind::Chain(operand, fields) => {
                if matches!(operand.kind, OperandKind::Nil) {
                    return self.error(format_args!("indirection through explicit nil in {node}"));
                }
                self.at = Some((operand.start, &**operand));
                (self.nested(|run| run.operand(dot, operand))?, fields)
            }
            _ => {
                return self.error(format_args!(
                    "can't evaluate command {}",
                    quoted(node.to_string())
                ));
            }
        };
        let mut is_interface = false;
        let mut last = last;
        for (i, name) in fields.iter().enumerate() {
            let is_last = i + 1 == fields.len();
            let (args, last) = if is_last {
                (args, last.take())
            } else {
                (&[][..], None)
            };
            (value, is_interface) = self.field(dot, value, is_interface, name, node, args, last)?;
        }
        Ok(value)
    }

    /// Returns a field, the value of a key, or the result of a method, and whether its type is an
    /// interface.
    #[expect(
        clippy::too_many_arguments,
        reason = "one caller, with the parts of one operand"
    )]
    fn field(
        &mut self,
        dot: &Value,
        receiver: Value,
        is_interface: bool,
        name: &'a str,
        node: &'a Operand,
        args: &'a [Operand],
        last: Option<Value>,
    ) -> Result<(Value, bool)> {
        if let Some(fixed) = methods::method(&receiver, name) {
            let signature = Signature {
                fixed,
                variadic: None,
            };
            self.check_n_args(name, signature, args.len(), last.is_some())?;
            let values = self.args(dot, signature, args, last)?;
            let _room = self.reserve(name, &values)?;
            let called = methods::call(&receiver, name, &values);
            return Ok((self.called((node.start, node), name, called)?, false));
        }
        let has_args = !args.is_empty() || last.is_some();
        let type_name = if is_interface {
            "interface {}"
        } else {
            receiver.type_name()
        };
        let field = match (&receiver, name) {
            (Value::Nil, _) if is_interface => {
                return self.error(format_args!("nil pointer evaluating interface {{}}.{name}"));
            }
            (Value::Nil, _) => return Ok((Value::Nil, false)),
            (Value::Labels(_) | Value::Args(_), _) if has_args => {
                return self.error(format_args!("{name} is not a method but has arguments"));
            }
            (Value::Labels(_), _) => receiver.entry(name).map(|value| (value, false)),
            (Value::Args(_), _) => receiver.entry(name).map(|value| (value, true)),
            _ => fixed_field(&receiver, name),
        };
        match field {
            Some(_) if has_args => self.error(format_args!(
                "{name} has arguments but cannot be invoked as function"
            )),
            Some(field) => Ok(field),
            None => self.error(format_args!(
                "can't evaluate field {name} in type {type_name}"
            )),
        }
    }
}

/// Returns a field of a struct, and whether its type in Go is an interface.
fn fixed_field(receiver: &Value, name: &str) -> Option<(Value, bool)> {
    Some(match (receiver, name) {
        (Value::Data(data), "Labels") => (Value::Labels(data.labels.clone()), false),
        (Value::Data(data), "ExternalLabels") => {
            (Value::Labels(data.external_labels.clone()), false)
        }
        (Value::Data(data), "ExternalURL") => (Value::String(Rc::clone(&data.external_url)), false),
        (Value::Data(data), "Value") => (data.value.clone(), true),
        (Value::Sample(sample), "Labels") => (Value::Labels(sample.labels.clone()), false),
        (Value::Sample(sample), "Value") => (Value::of_sample(sample), true),
        (Value::Histogram(histogram), "Count") => (Value::Float(histogram.count()), false),
        (Value::Histogram(histogram), "Sum") => (Value::Float(histogram.sum()), false),
        _ => return None,
    })
}
