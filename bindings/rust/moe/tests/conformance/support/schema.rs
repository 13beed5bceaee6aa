//! The part of JSON Schema that docs/explain.schema.json uses. A keyword that is not known here is a panic, not a pass.
use super::values::Value;

pub fn check(value: &Value, schema: &Value, whole: &Value, place: &str) -> Result<(), String> {
    for (keyword, rule) in schema.entries() {
        check_keyword(value, keyword, rule, schema, whole, place)?;
    }
    Ok(())
}

fn check_keyword(
    value: &Value,
    keyword: &str,
    rule: &Value,
    schema: &Value,
    whole: &Value,
    place: &str,
) -> Result<(), String> {
    let holds = |value: &Value, rule: &Value| check(value, rule, whole, place).is_ok();
    let number = || if let Value::Number(_) = value { Some(value.f64()) } else { None };
    let good = match keyword {
        // They hold for what is no object.
        "required" | "properties" | "additionalProperties" if !is(value, "object") => true,
        "$schema" | "$id" | "$defs" | "title" | "description" => true,
        "then" | "else" | "minContains" | "maxContains" => true, // read with if and contains
        "type" => match rule {
            Value::List(kinds) => kinds.iter().any(|kind| is(value, kind.str())),
            kind => is(value, kind.str()),
        },
        "const" => value == rule,
        "enum" => rule.list().contains(value),
        "not" => !holds(value, rule),
        "$ref" => {
            let name = rule.str().strip_prefix("#/$defs/").unwrap();
            return check(value, &whole["$defs"][name], whole, place);
        }
        "allOf" => return rule.list().iter().try_for_each(|one| check(value, one, whole, place)),
        "if" => match schema.get(if holds(value, rule) { "then" } else { "else" }) {
            Some(next) => return check(value, next, whole, place),
            None => true,
        },
        "required" => rule.list().iter().all(|name| value.get(name.str()).is_some()),
        "properties" => {
            for (name, rule) in rule.entries() {
                if let Some(inner) = value.get(name) {
                    check(inner, rule, whole, &format!("{}.{}", place, name))?;
                }
            }
            true
        }
        "additionalProperties" => {
            assert_eq!(rule, &Value::Bool(false));
            value.entries().iter().all(|(name, _)| schema["properties"].get(name).is_some())
        }
        "items" => {
            for (index, one) in items(value).iter().enumerate() {
                check(one, rule, whole, &format!("{}[{}]", place, index))?;
            }
            true
        }
        "contains" => {
            let count = items(value).iter().filter(|one| holds(one, rule)).count() as i64;
            let bound = |name, default| schema.get(name).map_or(default, Value::i64);
            count >= bound("minContains", 1) && count <= bound("maxContains", i64::MAX)
        }
        "minItems" => items(value).len() as i64 >= rule.i64(),
        "maxItems" => items(value).len() as i64 <= rule.i64(),
        "minLength" => value.str().chars().count() as i64 >= rule.i64(),
        "minimum" => number().map_or(true, |one| one >= rule.f64()),
        "maximum" => number().map_or(true, |one| one <= rule.f64()),
        "exclusiveMinimum" => number().map_or(true, |one| one > rule.f64()),
        "multipleOf" => number().map_or(true, |one| one % rule.f64() == 0.0),
        "pattern" => pattern_holds(rule.str(), value.str()),
        other => panic!("keyword {} is not known here", other),
    };
    if good {
        return Ok(());
    }
    Err(format!("{}: {:?} breaks {} {:?}", place, value, keyword, rule))
}

fn items(value: &Value) -> &[Value] {
    if let Value::List(values) = value {
        values
    } else {
        &[]
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(text) => kind == "number" || kind == "integer" && text.parse::<i64>().is_ok(),
        Value::Text(_) => kind == "string",
        Value::List(_) => kind == "array",
        Value::Table(_) => kind == "object",
    }
}

/// ^...$ of characters, classes, groups of alternatives, and the quantifiers + ? {n}.
fn pattern_holds(pattern: &str, text: &str) -> bool {
    let inner = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')).expect(pattern);
    ends(inner, text).contains(&"")
}

/// What may be left of text behind the pattern.
fn ends<'a>(pattern: &str, text: &'a str) -> Vec<&'a str> {
    if pattern.is_empty() {
        return vec![text];
    }
    let (atom, rest) = pattern.split_at(atom_length(pattern));
    let (least, most, rest) = quantifier(rest);
    let mut found = Vec::new();
    let mut reached = vec![text];
    for count in 0..=most {
        if count >= least {
            found.extend(reached.iter().flat_map(|left| ends(rest, left)));
        }
        reached = reached.iter().flat_map(|left| one_atom(atom, left)).collect();
        if reached.is_empty() {
            break;
        }
    }
    found
}

fn atom_length(pattern: &str) -> usize {
    match pattern.chars().next().unwrap() {
        '[' => pattern.find(']').unwrap() + 1,
        '\\' => 2,
        '(' => {
            let mut depth = 0;
            let closing = |(_, one): &(usize, char)| {
                depth += (*one == '(') as i32 - (*one == ')') as i32;
                depth == 0
            };
            pattern.char_indices().find(closing).unwrap().0 + 1
        }
        _ => 1,
    }
}

fn quantifier(rest: &str) -> (usize, usize, &str) {
    match rest.chars().next() {
        Some('+') => (1, usize::MAX - 1, &rest[1..]),
        Some('?') => (0, 1, &rest[1..]),
        Some('{') => {
            let (count, rest) = rest[1..].split_once('}').unwrap();
            (count.parse().unwrap(), count.parse().unwrap(), rest)
        }
        _ => (1, 1, rest),
    }
}

fn one_atom<'a>(atom: &str, text: &'a str) -> Vec<&'a str> {
    if let Some(group) = atom.strip_prefix('(') {
        return group[..group.len() - 1].split('|').flat_map(|one| ends(one, text)).collect();
    }
    let matches = |one: char| match atom.strip_prefix('[') {
        Some(class) => in_class(&class[..class.len() - 1], one),
        None => atom.ends_with(one),
    };
    text.chars().next().filter(|&one| matches(one)).map(|one| &text[one.len_utf8()..]).into_iter().collect()
}

fn in_class(class: &str, one: char) -> bool {
    let class: Vec<char> = class.chars().collect();
    let ranges = class.windows(3).any(|range| range[1] == '-' && range[0] <= one && one <= range[2]);
    ranges || one != '-' && class.contains(&one)
}

#[test]
fn patterns_and_schemas_can_fail() {
    let kernel = "^[a-z0-9]+_[a-z0-9]+_(route|experts)(_[a-z]+)?$";
    assert!(pattern_holds(kernel, "avx2_f32_experts") && pattern_holds(kernel, "a_b_route_x"));
    assert!(!pattern_holds(kernel, "a_b_router") && !pattern_holds("^[0-9a-f]{4}$", "00f"));
    let schema =
        super::values::json(r#"{"type": "object", "required": ["a"], "properties": {"a": {"minimum": 3}}}"#);
    let holds = |text| check(&super::values::json(text), &schema, &schema, "it").is_ok();
    assert!(holds(r#"{"a": 3}"#) && !holds(r#"{"a": 2}"#) && !holds("{}") && !holds("3"));
}
