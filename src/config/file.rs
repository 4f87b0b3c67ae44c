//! The configuration file, and the order of precedence: an argument outranks the file.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Read as _;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use toml::{Table, Value};

use super::secret::Secret;
use crate::limits;

/// What is wrong with the configuration, one sentence each, and which settings were given where. The sentences
/// never show a value that is secret.
#[derive(Debug, Default)]
pub(super) struct Problems {
    sentences: Vec<String>,
    /// By the variable of a setting, or by its place in the file where it has none.
    given: BTreeMap<String, GivenAt>,
}

/// Where a setting was given, and as what.
#[derive(Debug, Clone)]
pub(super) struct GivenAt {
    pub(super) in_file: bool,
    pub(super) text: Secret<String>,
}

impl Problems {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn into_sentences(self) -> Vec<String> {
        self.sentences
    }

    /// Notes where a setting was given.
    pub(super) fn note(&mut self, name: &str, in_file: bool, text: &str) {
        self.given.insert(name.to_owned(), GivenAt { in_file, text: Secret::new(text.to_owned()) });
    }

    /// Another setting has taken the place of this one.
    pub(super) fn outranked(&mut self, name: &str) {
        self.given.remove(name);
    }

    /// The same, where this one was given at all.
    pub(super) fn outranks(&mut self, other: Option<&Given>) {
        if let Some(other) = other {
            self.outranked(&other.name);
        }
    }

    pub(super) fn given(&self, name: &str) -> Option<&GivenAt> {
        self.given.get(name)
    }
}

impl Deref for Problems {
    type Target = Vec<String>;

    fn deref(&self) -> &Vec<String> {
        &self.sentences
    }
}

impl DerefMut for Problems {
    fn deref_mut(&mut self) -> &mut Vec<String> {
        &mut self.sentences
    }
}

/// A value and where it was given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) text: Secret<String>,
    pub(super) from: String,
    pub(super) in_file: bool,
    /// The variable of the setting; empty for one that stands in the file alone.
    pub(super) name: String,
}

impl Given {
    /// Reads the value, or notes why it can't be read.
    pub(super) fn parse<T, E: Display>(
        &self,
        problems: &mut Problems,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match read(self.text.expose()) {
            Ok(value) => Some(value),
            Err(fault) => {
                problems.push(format!("{}: {fault}", self.from));
                None
            }
        }
    }
}

/// What became of a setting.
#[derive(Debug)]
pub(super) enum Found<T> {
    /// Not given.
    Absent,
    /// Given, with a problem that is noted.
    Wrong,
    /// Given.
    Good(T),
}

impl<T> Found<T> {
    /// Of a setting that is given.
    pub(super) fn given(value: Option<T>) -> Self {
        value.map_or(Self::Wrong, Self::Good)
    }

    pub(super) const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    pub(super) fn good(self) -> Option<T> {
        match self {
            Self::Good(value) => Some(value),
            Self::Absent | Self::Wrong => None,
        }
    }
}

/// One table of the file. What is read is taken out of it; what is left at the end is unknown.
pub(super) struct Section {
    path: String,
    table: Table,
}

impl Section {
    /// A table that is not there.
    pub(super) fn empty() -> Self {
        Self { path: String::new(), table: Table::new() }
    }

    fn name(&self, key: &str) -> String {
        format!("`{}{key}` in the configuration file", self.path)
    }

    /// A text, number or truth value, as text. Empty texts count as unset.
    pub(super) fn text(&mut self, key: &str, problems: &mut Problems) -> Option<Given> {
        let text = match self.table.remove(key)? {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(truth) => truth.to_string(),
            _ => {
                problems.push(format!("{}: must be a single value", self.name(key)));
                return None;
            }
        };
        let given = Given { text: Secret::new(text), from: self.name(key), in_file: true, name: String::new() };
        (!given.text.expose().is_empty()).then_some(given)
    }

    /// A setting: from the argument (its name is that of the variable), or else from the file.
    pub(super) fn pick(
        &mut self,
        argument: Option<&String>,
        variable: &str,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Given> {
        let in_file = self.text(key, problems);
        noted(from_argument(argument, variable).or(in_file), variable, problems)
    }

    /// A setting that is a secret: from the environment, or else from the file.
    pub(super) fn pick_secret(
        &mut self,
        secret: Option<&Secret<String>>,
        variable: &str,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Given> {
        let in_file = self.text(key, problems);
        noted(from_environment(secret, variable).or(in_file), variable, problems)
    }

    /// A setting that is a list: by comma, in the file also an array of texts.
    pub(super) fn pick_list(
        &mut self,
        argument: Option<&String>,
        variable: &str,
        key: &str,
        problems: &mut Problems,
    ) -> Option<(Vec<String>, String)> {
        let in_file = match self.table.get(key) {
            Some(Value::Array(items)) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
                self.table.remove(key);
                if texts.is_none() {
                    problems.push(format!("{}: must be a list of texts", self.name(key)));
                }
                texts.map(|texts| (texts, self.name(key)))
            }
            _ => self.text(key, problems).map(by_comma),
        };
        let argued = from_argument(argument, variable).map(by_comma);
        if argued.is_some() || in_file.is_some() {
            problems.note(variable, argued.is_none(), "");
        }
        argued.or(in_file)
    }

    /// A table in this table; an empty one if it is not there.
    pub(super) fn section(&mut self, key: &str, problems: &mut Problems) -> Self {
        let path = format!("{}{key}.", self.path);
        match self.table.remove(key) {
            Some(Value::Table(table)) => Self { path, table },
            Some(_) => {
                problems.push(format!("{}: must be a table", self.name(key)));
                Self::empty()
            }
            None => Self { path, table: Table::new() },
        }
    }

    /// The names of what was not read yet.
    pub(super) fn names(&self) -> Vec<String> {
        self.table.keys().cloned().collect()
    }

    /// Whether a value is a table.
    pub(super) fn is_table(&self, key: &str) -> bool {
        matches!(self.table.get(key), Some(Value::Table(_)))
    }

    /// A list of tables.
    pub(super) fn sections(&mut self, key: &str, problems: &mut Problems) -> Vec<Self> {
        let items = match self.table.remove(key) {
            Some(Value::Array(items)) => items,
            Some(other) => vec![other],
            None => vec![],
        };
        let mut sections = Vec::new();
        for (place, item) in items.into_iter().enumerate() {
            match item {
                Value::Table(table) => sections.push(Self { path: format!("{}{key}[{place}].", self.path), table }),
                _ => problems.push(format!("{}: must be a list of tables", self.name(key))),
            }
        }
        sections
    }

    /// Notes everything that was not read.
    pub(super) fn finish(self, problems: &mut Problems) {
        for key in self.table.keys() {
            problems.push(format!("{}: unknown", self.name(key)));
        }
    }

    /// A problem with this table as a whole.
    pub(super) fn problem(&self, fault: impl Display, problems: &mut Problems) {
        problems.push(format!("`{}` in the configuration file: {fault}", self.path.trim_end_matches('.')));
    }
}

/// Notes where a setting was given.
pub(super) fn noted(given: Option<Given>, variable: &str, problems: &mut Problems) -> Option<Given> {
    let mut given = given?;
    variable.clone_into(&mut given.name);
    problems.note(variable, given.in_file, given.text.expose());
    Some(given)
}

fn by_comma(given: Given) -> (Vec<String>, String) {
    let items = given.text.expose().split(',').map(str::trim).filter(|item| !item.is_empty());
    (items.map(str::to_owned).collect(), given.from)
}

/// A value from the command line or the environment; the parser of the command line joins them.
pub(super) fn from_argument(argument: Option<&String>, variable: &str) -> Option<Given> {
    let text = argument.filter(|text| !text.is_empty())?;
    let flag = variable.strip_prefix("ACTONCE_").unwrap_or(variable).to_ascii_lowercase().replace('_', "-");
    Some(Given {
        text: Secret::new(text.clone()),
        from: format!("--{flag} ({variable})"),
        in_file: false,
        name: variable.to_owned(),
    })
}

/// A secret from the environment.
pub(super) fn from_environment(secret: Option<&Secret<String>>, variable: &str) -> Option<Given> {
    let text = secret.filter(|text| !text.expose().is_empty())?.clone();
    Some(Given { text, from: variable.to_owned(), in_file: false, name: variable.to_owned() })
}

/// Reads a file of bounded size.
pub(super) fn read(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let fault = |error: std::io::Error| format!("{} can't be read: {error}", path.display());
    let file = std::fs::File::open(path).map_err(fault)?;
    let bound = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    file.take(bound).read_to_end(&mut bytes).map_err(fault)?;
    if bytes.len() > most { Err(format!("{} is larger than {most} bytes", path.display())) } else { Ok(bytes) }
}

/// Reads the configuration file, if one is named.
pub(super) fn load(argument: Option<&String>, problems: &mut Problems) -> Section {
    let named = noted(from_argument(argument, "ACTONCE_CONFIG"), "ACTONCE_CONFIG", problems);
    let table = named.and_then(|given| {
        given.parse(problems, |path| {
            let bytes = read(Path::new(path), limits::CONFIG_FILE_BYTES)?;
            let text = String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8"))?;
            text.parse::<Table>().map_err(|error| {
                // The library's own text shows the line, and there may be a secret in it.
                let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
                format!("{path}, line {}: {}", before.matches('\n').count() + 1, error.message())
            })
        })
    });
    Section { path: String::new(), table: table.unwrap_or_default() }
}
