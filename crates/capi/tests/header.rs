// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header, the version script and the border say the same: every function with the types of its
//! arguments, every structure with its fields, every number.
//!
//! The header is written by hand: most of it is text that says what a function promises, and the
//! tool that would make it (cbindgen) has a licence that this workspace does not take.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test that panics has failed

use std::collections::BTreeMap;

const HEADER: &str = include_str!("../include/lunwire.h");
const MAP: &str = include_str!("../liblunwire.map");
const BORDER: [&str; 3] = [
    include_str!("../src/border.rs"),
    include_str!("../src/border/calls.rs"),
    include_str!("../src/border/ring.rs"),
];
const CODES: &str = include_str!("../src/code.rs");
const RING: &str = include_str!("../src/ring.rs");
const LIMITS: &str = include_str!("../src/limits.rs");

/// Types of the border, as C has them.
const TYPES: [(&str, &str); 18] = [
    ("*const c_char", "const char *"),
    ("*const u8", "const void *"),
    ("*mut Entry", "struct lunwire_completion *"),
    ("*mut Handle", "HANDLE *"),
    ("*mut Info", "struct lunwire_info *"),
    ("*mut Record", "struct lunwire_error *"),
    ("*mut u8", "void *"),
    ("Handle", "HANDLE"),
    ("[u8; 3]", "uint8_t[3]"),
    ("[u8; 128]", "char[128]"),
    ("[u8; 224]", "char[224]"),
    ("[u8; TEXT]", "char[1008]"),
    ("c_int", "int"),
    ("i32", "int32_t"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("u8", "uint8_t"),
    ("usize", "size_t"),
];

fn as_c(rust: &str) -> &'static str {
    let found = TYPES.iter().find(|(known, _)| *known == rust.trim());
    found.unwrap_or_else(|| panic!("what is {rust:?} in C?")).1
}

/// The header without comments, and with one space where there is some.
fn header() -> String {
    let mut text = String::new();
    for (index, part) in HEADER.split("/*").enumerate() {
        text.push_str(if index == 0 { part } else { part.split_once("*/").unwrap().1 });
    }
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// `const void *from`, `char text[9]`: without the name, handles as one type.
fn type_of(declared: &str) -> String {
    let (declared, array) = match declared.split_once('[') {
        Some((before, size)) => (before, format!("[{size}")),
        None => (declared, String::new()),
    };
    let named = declared.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
    let mut kind = named.trim().to_owned();
    for handle in ["lunwire_options", "lunwire_disk", "lunwire_queue"] {
        kind = kind.replace(handle, "HANDLE");
    }
    kind + &array
}

/// Name and types, the result first.
fn functions_of_header() -> BTreeMap<String, Vec<String>> {
    let header = header();
    let mut found = BTreeMap::new();
    for statement in header.split([';', '{', '}']).filter(|statement| statement.contains('(')) {
        let (front, arguments) = statement.split_once('(').unwrap();
        let at = front.rfind([' ', '*']).unwrap() + 1;
        let (result, name) = front.split_at(at);
        let arguments = arguments.trim_end_matches(')');
        let mut types = vec![result.trim().to_owned()];
        types.extend(arguments.split(',').filter(|one| *one != "void").map(type_of));
        found.insert(name.to_owned(), types);
    }
    found
}

fn functions_of_border() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for source in BORDER {
        for function in source.split("extern \"C\" fn ").skip(1) {
            let (name, rest) = function.split_once('(').unwrap();
            let (arguments, rest) = rest.split_once(')').unwrap();
            let result = rest.split_once("-> ").unwrap().1.split_once(" {").unwrap().0;
            let mut types = vec![as_c(result).to_owned()];
            let arguments = arguments.split(',').filter_map(|one| one.split_once(':'));
            types.extend(arguments.map(|(_, kind)| as_c(kind).to_owned()));
            found.insert(name.to_owned(), types);
        }
    }
    found
}

#[test]
fn functions_have_the_same_types() {
    let (header, border) = (functions_of_header(), functions_of_border());
    assert!(header.len() > 25, "{header:?}");
    assert_eq!(header, border);
    let map = MAP.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let map: Vec<_> = map.filter(|name| name.starts_with("lunwire_")).collect();
    assert_eq!(map, header.keys().map(String::as_str).collect::<Vec<_>>(), "version script");
}

#[test]
fn structures_have_the_same_fields() {
    let header = header();
    for (rust, c) in [("Record", "error"), ("Info", "info"), ("Entry", "completion")] {
        let start = format!("\nstruct {rust} {{");
        let body = BORDER.iter().find_map(|source| source.split_once(&start)).unwrap().1;
        let body = body.split_once('}').unwrap().0;
        let rust: Vec<_> = body
            .split(",\n")
            .filter_map(|field| field.split_once(':'))
            .map(|(name, kind)| (name.trim().to_owned(), as_c(kind).to_owned()))
            .collect();
        let start = format!("struct lunwire_{c} {{");
        let body = header.split_once(&start).unwrap().1.split_once('}').unwrap().0;
        let name = |field: &str| {
            let field = field.split('[').next().unwrap_or_default();
            field.rsplit([' ', '*']).next().unwrap_or_default().to_owned()
        };
        let fields = body.split(';').map(str::trim).filter(|field| !field.is_empty());
        let c: Vec<_> = fields.map(|field| (name(field), type_of(field))).collect();
        assert_eq!(rust, c);
    }
}

/// `Miscompare = -13,` and `LUNWIRE_E_MISCOMPARE = -13,`.
#[test]
fn numbers_are_the_same() {
    let header = header();
    let numbers = |text: &str, start: &str| -> Vec<(String, i64)> {
        let body = text.split_once(start).unwrap().1.split_once('}').unwrap().0;
        let named = body.split(',').filter_map(|one| one.split_once('='));
        named
            .map(|(name, number)| (name.trim().to_owned(), number.trim().parse().unwrap()))
            .collect()
    };
    let upper = |name: &str, prefix: &str| {
        let mut to = prefix.to_owned();
        for (at, letter) in name.char_indices() {
            if letter.is_uppercase() && at > 0 {
                to.push('_');
            }
            to.extend(letter.to_uppercase());
        }
        to
    };
    for (source, rust, c, prefix) in [
        (CODES, "enum Code {", "enum lunwire_code {", "LUNWIRE_E_"),
        (RING, "enum What {", "enum lunwire_what {", "LUNWIRE_"),
    ] {
        let here: Vec<_> = numbers(source, rust)
            .into_iter()
            .map(|(name, number)| (upper(&name, prefix), number))
            .collect();
        let mut there = numbers(&header, c);
        there.retain(|(name, _)| name != "LUNWIRE_OK");
        assert_eq!(here, there);
    }
    let calls = BORDER[1];
    for (constant, define) in [
        ("READ_ONLY", "HAS_READ_ONLY"),
        ("WRITE_CACHE", "HAS_WRITE_CACHE"),
        ("FUA", "HAS_FUA"),
        ("DISCARD", "HAS_DISCARD"),
        ("DISCARD_ZEROES", "HAS_DISCARD_ZEROES"),
        ("ZERO", "HAS_ZERO"),
        ("WRITE_FUA", "FUA"),
        ("ZERO_KEEP", "KEEP"),
    ] {
        let number = calls.split_once(&format!("const {constant}: u32 = ")).unwrap().1;
        let number = number.split_once(';').unwrap().0;
        assert!(HEADER.contains(&format!("#define LUNWIRE_{define} {number}u")), "{define}");
    }
    assert!(HEADER.contains(&format!("#define LUNWIRE_LENGTH_MAX {}u", 32 << 20)));
    assert!(LIMITS.contains("const LENGTH_MAX: usize = 32 << 20;"));
}
