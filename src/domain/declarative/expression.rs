//! Conditions and values over an answer: CEL, read by the `cel` crate, within bounds of our own.
//!
//! What the library does not bound is bounded here, before and while an expression runs: its length
//! and depth, the names and functions it may use, and the turns of all its loops. Macros that build
//! lists from anything but the elements of a list (`map`) are refused, so that no expression needs
//! much more memory than the answer it looks at. Its parser with a recursion limit is used: the other
//! one ends the process on deep nesting.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::objects::{Key, Map};
use cel::parser::PrattParser;
use cel::{Context, Env, ExecutionError};
use serde_json::{Number, Value};

use super::subject::EFFECT_FIELDS;
use crate::limits;

/// The function that counts the turns of loops. No source text can name it.
const TURN: &str = "@turn";

/// Functions and methods that expressions may use, with the number of arguments (the receiver is none).
const FUNCTIONS: [(&str, bool, usize); 10] = [
    ("size", false, 1),
    ("size", true, 0),
    ("contains", true, 1),
    ("startsWith", true, 1),
    ("endsWith", true, 1),
    ("string", false, 1),
    ("int", false, 1),
    ("uint", false, 1),
    ("double", false, 1),
    ("bool", false, 1),
];

const OPERATORS: [&str; 18] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::IN,
];

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// The variables that an expression may use.
const VARIABLES: [&str; 5] = ["status", "headers", "body", "effect", "receipt"];

/// An expression that was read and checked.
#[derive(Debug, Clone)]
pub struct Expression {
    root: IdedExpr,
    mentions: Vec<&'static str>,
}

impl Expression {
    /// Reads an expression. Without `receipt` there is none to speak of.
    ///
    /// # Errors
    /// What is wrong with it, without its text.
    pub fn parse(text: &str, receipt: bool) -> Result<Self, String> {
        if text.len() > limits::EXPRESSION_BYTES {
            return Err(format!("must be at most {} bytes", limits::EXPRESSION_BYTES));
        }
        if text.contains('\0') {
            return Err("must not contain a NUL character".to_owned());
        }
        let depth = u16::try_from(limits::EXPRESSION_DEPTH).unwrap_or(u16::MAX);
        let parser = PrattParser::new()
            .max_recursion_depth(depth)
            .max_expression_node_count(limits::EXPRESSION_BYTES.saturating_mul(8))
            .error_recovery_limit(4)
            .error_reporting_limit(4);
        let mut root = parser.parse(text).map_err(|errors| match errors.errors.first() {
            Some(error) if error.pos.0 > 0 => {
                format!("is not a CEL expression (line {}, column {})", error.pos.0, error.pos.1)
            }
            _ => "is not a CEL expression".to_owned(),
        })?;
        let mut walk = Walk { receipt, locals: Vec::new(), mentions: Vec::new() };
        walk.check(&mut root, 0)?;
        Ok(Self { root, mentions: walk.mentions })
    }

    /// Whether it uses a variable.
    #[must_use]
    pub fn mentions(&self, variable: &str) -> bool {
        self.mentions.contains(&variable)
    }
}

struct Walk {
    receipt: bool,
    locals: Vec<String>,
    mentions: Vec<&'static str>,
}

impl Walk {
    fn check(&mut self, node: &mut IdedExpr, depth: usize) -> Result<(), String> {
        if depth > limits::EXPRESSION_DEPTH {
            return Err("is nested too deeply".to_owned());
        }
        let deeper = depth.saturating_add(1);
        match &mut node.expr {
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => {
                self.check(&mut select.operand, deeper)?;
                let of_effect = matches!(&select.operand.expr, Expr::Ident(name) if name == "effect");
                if of_effect && !EFFECT_FIELDS.contains(&select.field.as_str()) {
                    return Err("names something that `effect` does not have".to_owned());
                }
                Ok(())
            }
            Expr::Call(call) => self.call(call, deeper),
            Expr::List(list) if list.optional_indices.is_empty() => {
                list.elements.iter_mut().try_for_each(|element| self.check(element, deeper))
            }
            Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) if !entry.optional => {
                    self.check(&mut entry.key, deeper)?;
                    self.check(&mut entry.value, deeper)
                }
                _ => Err("uses something that is not offered here".to_owned()),
            }),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, deeper),
            _ => Err("uses something that is not offered here".to_owned()),
        }
    }

    fn name(&mut self, name: &str) -> Result<(), String> {
        if self.locals.iter().any(|local| local == name) {
            return Ok(());
        }
        let known = VARIABLES.into_iter().find(|variable| *variable == name);
        match known {
            Some("receipt") if !self.receipt => Err("names `receipt`, and a lookup has none".to_owned()),
            Some(variable) => {
                self.mentions.push(variable);
                Ok(())
            }
            None => Err("names a variable that does not exist".to_owned()),
        }
    }

    fn call(&mut self, call: &mut CallExpr, depth: usize) -> Result<(), String> {
        let is_operator = call.target.is_none()
            && (OPERATORS.contains(&call.func_name.as_str()) || call.func_name == operators::NOT_STRICTLY_FALSE);
        let shape = (call.func_name.as_str(), call.target.is_some(), call.args.len());
        if !is_operator && !FUNCTIONS.contains(&shape) {
            return Err("calls a function that is not offered here".to_owned());
        }
        if let Some(target) = &mut call.target {
            self.check(target, depth)?;
        }
        call.args.iter_mut().try_for_each(|argument| self.check(argument, depth))
    }

    fn comprehension(&mut self, loops: &mut ComprehensionExpr, depth: usize) -> Result<(), String> {
        if loops.iter_var2.is_some() {
            return Err("uses something that is not offered here".to_owned());
        }
        if VARIABLES.contains(&loops.iter_var.as_str()) {
            return Err("names a loop variable like one that exists".to_owned());
        }
        self.check(&mut loops.iter_range, depth)?;
        self.check(&mut loops.accu_init, depth)?;
        let outer = self.locals.len();
        self.locals.push(loops.iter_var.clone());
        self.locals.push(loops.accu_var.clone());
        self.check(&mut loops.loop_cond, depth)?;
        self.check(&mut loops.loop_step, depth)?;
        self.check(&mut loops.result, depth)?;
        self.locals.truncate(outer);
        count_turns(loops)
    }
}

/// Makes a loop ask [`TURN`] before each turn, and refuses loops that build other lists than `filter`.
fn count_turns(loops: &mut ComprehensionExpr) -> Result<(), String> {
    const MAP: &str = "uses `map`, which is not offered here";
    if !matches!(loops.loop_cond.expr, Expr::Literal(_)) {
        guard(&mut loops.loop_cond);
        return Ok(());
    }
    // `filter` and `exists_one`: the library knows the form of their steps and runs them well, so the
    // question is put into the step's condition and leaves the form as it is.
    let builds_list = matches!(loops.accu_init.expr, Expr::List(_));
    match &mut loops.loop_step.expr {
        Expr::Call(step) if step.func_name == operators::CONDITIONAL && step.args.len() == 3 => {
            let appends_element = matches!(&step.args[1].expr, Expr::Call(add) if add.args.last().is_some_and(|items| {
                matches!(&items.expr, Expr::List(items)
                    if matches!(items.elements.as_slice(), [IdedExpr { expr: Expr::Ident(name), .. }] if *name == loops.iter_var))
            }));
            if builds_list && !appends_element {
                return Err(MAP.to_owned());
            }
            guard(&mut step.args[0]);
            Ok(())
        }
        _ => Err(MAP.to_owned()),
    }
}

/// `condition` becomes `@turn() ? condition : false`. An error of `@turn` ends the loop; nothing inside
/// a conditional's condition absorbs it.
fn guard(condition: &mut IdedExpr) {
    let id = condition.id;
    let node = |expr| IdedExpr { id, expr };
    let turn = node(Expr::Call(CallExpr { func_name: TURN.to_owned(), target: None, args: Vec::new() }));
    let no = node(Expr::Literal(LiteralValue::Boolean(false.into())));
    let asked = std::mem::take(condition);
    *condition = node(Expr::Call(CallExpr {
        func_name: operators::CONDITIONAL.to_owned(),
        target: None,
        args: vec![turn, asked, no],
    }));
}

/// The turns that are left, and whether anybody still waits.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU32,
    stopped: AtomicBool,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(limits::EXPRESSION_TURNS)
    }
}

impl Budget {
    /// So many turns.
    #[must_use]
    pub const fn of(turns: u32) -> Self {
        Self { left: AtomicU32::new(turns), stopped: AtomicBool::new(false) }
    }

    /// Ends whatever runs on it, soon.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn spend(&self) -> bool {
        let spent = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if !spent {
            self.stop();
        }
        spent && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// Why an expression has no value. Never content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationFault {
    /// It went wrong, or its value is of another type.
    #[error("a rule failed")]
    Failed,
    /// It took too long.
    #[error("the rules took too long")]
    TooLong,
    /// A number that this machine would change.
    #[error("the answer has a number that can't be held exactly")]
    Inexact,
}

/// What expressions look at.
pub struct Scope {
    context: Context<'static, 'static>,
    budget: Arc<Budget>,
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl Scope {
    /// The variables of one answer.
    ///
    /// # Errors
    /// A number that can't be held exactly.
    pub fn new(
        (status, headers, body): (u16, &BTreeMap<String, String>, &Value),
        (effect, receipt): (&Value, &Value),
        budget: Arc<Budget>,
    ) -> Result<Self, EvaluationFault> {
        let mut context = Context::with_env(Arc::clone(&ENV));
        let headers: HashMap<Key, cel::Value> = headers.iter().map(|(name, value)| (key(name), text(value))).collect();
        for (name, value) in [
            ("status", cel::Value::Int(i64::from(status))),
            ("headers", cel::Value::Map(Map { map: Arc::new(headers) })),
            ("body", to_cel(body)?),
            ("effect", to_cel(effect)?),
            ("receipt", to_cel(receipt)?),
        ] {
            context.add_variable(name, value).map_err(|_| EvaluationFault::Failed)?;
        }
        let turns = Arc::clone(&budget);
        let turn = move || -> Result<bool, ExecutionError> {
            if turns.spend() { Ok(true) } else { Err(ExecutionError::InternalError(String::new())) }
        };
        context.add_function(TURN, turn).map_err(|_| EvaluationFault::Failed)?;
        Ok(Self { context, budget })
    }

    fn evaluate(&self, expression: &Expression) -> Result<cel::Value, EvaluationFault> {
        if self.budget.is_over() {
            return Err(EvaluationFault::TooLong);
        }
        let value = cel::Value::resolve(&expression.root, &self.context);
        // `||`, `&&`, `all` and `exists` may swallow an error, and must not swallow this one.
        if self.budget.is_over() {
            return Err(EvaluationFault::TooLong);
        }
        value.map_err(|_| EvaluationFault::Failed)
    }

    /// The value of a condition.
    ///
    /// # Errors
    /// It failed, or is no boolean.
    pub fn holds(&self, expression: &Expression) -> Result<bool, EvaluationFault> {
        match self.evaluate(expression)? {
            cel::Value::Bool(value) => Ok(value),
            _ => Err(EvaluationFault::Failed),
        }
    }

    /// The value of an expression that gives a text.
    ///
    /// # Errors
    /// It failed, or is no text.
    pub fn text(&self, expression: &Expression) -> Result<String, EvaluationFault> {
        match self.evaluate(expression)? {
            cel::Value::String(text) => Ok(Arc::unwrap_or_clone(text)),
            _ => Err(EvaluationFault::Failed),
        }
    }

    /// The value of any expression.
    ///
    /// # Errors
    /// It failed, or is nothing that JSON can say.
    pub fn value(&self, expression: &Expression) -> Result<Value, EvaluationFault> {
        to_json(&self.evaluate(expression)?, 0)
    }
}

fn key(name: &str) -> Key {
    Key::String(Arc::new(name.to_owned()))
}

fn text(value: &str) -> cel::Value {
    cel::Value::String(Arc::new(value.to_owned()))
}

/// Beyond this magnitude a double skips integers, so that two ids could become one.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn to_cel(value: &Value) -> Result<cel::Value, EvaluationFault> {
    Ok(match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::String(value) => text(value),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), _, _) => cel::Value::Int(value),
            (None, Some(value), _) => cel::Value::UInt(value),
            (None, None, Some(value)) if value.abs() < EXACT => cel::Value::Float(value),
            _ => return Err(EvaluationFault::Inexact),
        },
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel).collect::<Result<_, _>>()?)),
        Value::Object(members) => {
            let map = members.iter().map(|(name, value)| Ok((key(name), to_cel(value)?)));
            cel::Value::Map(Map { map: Arc::new(map.collect::<Result<_, EvaluationFault>>()?) })
        }
    })
}

fn to_json(value: &cel::Value, depth: usize) -> Result<Value, EvaluationFault> {
    if depth > limits::JSON_DEPTH {
        return Err(EvaluationFault::Failed);
    }
    let deeper = depth.saturating_add(1);
    Ok(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(value) => Value::Bool(*value),
        cel::Value::String(text) => Value::String(text.as_str().to_owned()),
        cel::Value::Int(value) => Value::Number((*value).into()),
        cel::Value::UInt(value) => Value::Number((*value).into()),
        cel::Value::Float(value) => Value::Number(Number::from_f64(*value).ok_or(EvaluationFault::Failed)?),
        cel::Value::List(items) => {
            Value::Array(items.iter().map(|item| to_json(item, deeper)).collect::<Result<_, _>>()?)
        }
        cel::Value::Map(map) => {
            let members = map.map.iter().map(|(name, value)| match name {
                Key::String(name) => Ok((name.as_str().to_owned(), to_json(value, deeper)?)),
                _ => Err(EvaluationFault::Failed),
            });
            Value::Object(members.collect::<Result<_, EvaluationFault>>()?)
        }
        _ => return Err(EvaluationFault::Failed),
    })
}

#[cfg(test)]
mod tests;
