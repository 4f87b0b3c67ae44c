//! Documents name tests as proofs; a proof that is not there is none.

use std::fs;

use crate::support::rust_files;

/// All of the code, tests included.
fn code() -> String {
    let files = ["src", "tests"].into_iter().flat_map(rust_files);
    files.map(|path| fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn tests_that_the_security_page_names_are_there() {
    let code = code();
    let page = include_str!("../../docs/security.md");
    let is_test =
        |name: &&str| name.contains("::") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b));
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(named.len() > 40, "{}", named.len());
    for name in named {
        let function = name.rsplit("::").next().unwrap();
        assert!(code.contains(&format!("fn {function}(")), "{name} is no test");
    }
}
