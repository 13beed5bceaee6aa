//! JSON, and as much of TOML as cases.toml has: their values differ only in how keys are written.
use std::ops::Index;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl Value {
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Value::Table(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub fn entries(&self) -> &[(String, Value)] {
        match self {
            Value::Table(entries) => entries,
            other => panic!("{:?} is no table", other),
        }
    }

    pub fn list(&self) -> &[Value] {
        match self {
            Value::List(values) => values,
            other => panic!("{:?} is no list", other),
        }
    }

    pub fn str(&self) -> &str {
        match self {
            Value::Text(text) => text,
            other => panic!("{:?} is no text", other),
        }
    }

    pub fn i64(&self) -> i64 {
        match self {
            Value::Number(text) => text.parse().unwrap_or_else(|_| panic!("{} is no integer", text)),
            other => panic!("{:?} is no number", other),
        }
    }

    pub fn f64(&self) -> f64 {
        match self {
            Value::Number(text) => text.parse().unwrap(),
            other => panic!("{:?} is no number", other),
        }
    }
}

impl Index<&str> for Value {
    type Output = Value;
    fn index(&self, key: &str) -> &Value {
        self.get(key).unwrap_or_else(|| panic!("no {} in {:?}", key, self))
    }
}

pub fn json(text: &str) -> Value {
    let mut reader = Reader { rest: text };
    let value = reader.value();
    reader.space();
    assert!(reader.rest.is_empty(), "more behind the value: {:?}", reader.rest);
    value
}

/// The table [[case]] of that id, whose entries are one line each.
pub fn toml_case(text: &str, id: &str) -> Value {
    for section in text.split("\n[[case]]").skip(1) {
        let entries = section.lines().filter_map(|line| {
            let (key, value) = line.split_once(" = ").filter(|(key, _)| !key.starts_with('#'))?;
            Some((key.to_string(), Reader { rest: value }.value()))
        });
        let table = Value::Table(entries.collect());
        if table["id"].str() == id {
            return table;
        }
    }
    panic!("{} is no case", id)
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn skip(&mut self, word: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn until(&mut self, ends: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (found, rest) = self.rest.split_at(end);
        self.rest = rest;
        found
    }

    fn value(&mut self) -> Value {
        if self.skip("{") {
            return self.table();
        }
        if self.skip("[") {
            return self.list();
        }
        if self.skip("\"") {
            return Value::Text(self.string());
        }
        match self.until(|one| !(one.is_alphanumeric() || "+-.".contains(one))) {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            number => {
                assert!(number.parse::<f64>().is_ok(), "no value: {:?} before {:?}", number, self.rest);
                Value::Number(number.to_string())
            }
        }
    }

    fn list(&mut self) -> Value {
        let mut values = Vec::new();
        while !self.skip("]") {
            values.push(self.value());
            self.skip(",");
        }
        Value::List(values)
    }

    fn table(&mut self) -> Value {
        let mut entries = Vec::new();
        while !self.skip("}") {
            let key = if self.skip("\"") {
                self.string()
            } else {
                self.until(|one| " =".contains(one)).to_string()
            };
            assert!(self.skip(":") || self.skip("="), "no value for {}", key);
            entries.push((key, self.value()));
            self.skip(",");
        }
        Value::Table(entries)
    }

    fn string(&mut self) -> String {
        let mut found = String::new();
        loop {
            found += self.until(|one| one == '"' || one == '\\');
            let escaped = self.rest.starts_with('\\');
            self.rest = &self.rest[1..];
            if !escaped {
                return found;
            }
            let one = self.rest.chars().next().unwrap();
            self.rest = &self.rest[one.len_utf8()..];
            found.push(match one {
                'n' => '\n',
                't' => '\t',
                'u' => {
                    let (code, rest) = self.rest.split_at(4);
                    self.rest = rest;
                    char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap()
                }
                other => other,
            });
        }
    }
}

#[test]
fn values_are_read() {
    let read = json(r#"{"a": [1, -2.5e3, true, null], "b": "x\n\"\u0041", "c": {}}"#);
    assert_eq!((read["a"].list()[0].i64(), read["a"].list()[1].f64()), (1, -2500.0));
    assert_eq!((&read["a"].list()[3], read["b"].str()), (&Value::Null, "x\n\"A"));
    assert_eq!(super::case("BIG-02")["rows"].i64(), (1 << 32) + 1);
    assert_eq!(super::case("LIST-01")["size"]["format"].str(), "nvfp4");
}
