//! Files that are made to hurt are refused at once, with a message that says why.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::time::{Duration, Instant};

use muster_templates::library::Library;
use muster_templates::repos;
use muster_templates::source::{Source, Tree};

/// Much more than any of these takes without optimisation on a slow machine under load.
const SOON: Duration = Duration::from_secs(5);

/// What is said of a file, all mistakes, where the stack is a thread's.
fn refused(text: &str) -> Vec<String> {
    let source = Source {
        path: "f.yaml".into(),
        text: text.into(),
        tree: Tree::User,
    };
    let start = Instant::now();
    let errors = Library::parse(&[source]).unwrap_err();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    errors.0.iter().map(ToString::to_string).collect()
}

#[test]
fn large_files() {
    let large = ["f.yaml: the file is larger than 1048576 bytes"];
    assert_eq!(refused(&"a: {image: x}\n".repeat(1_000_000)), large);
    let keys: String = (0..1_000_000).map(|i| format!("k{i}:\n")).collect();
    assert_eq!(refused(&keys), large);
    let most = "the file holds more than 100000 values";
    assert_eq!(
        refused(&"k:\n".repeat(300_000)),
        [format!("f.yaml:50000:2: {most}")]
    );
    assert_eq!(
        refused(&format!("[{}", "a,".repeat(500_000))),
        [format!("f.yaml:1:200000: {most}")]
    );
}

#[test]
fn deep_files() {
    const LEVELS: usize = 100_000;
    let deep = |text: String| {
        let told = refused(&text);
        let [told] = told.as_slice() else {
            panic!("{told:?}")
        };
        assert!(
            told.ends_with(": more than 24 lists and maps in one another"),
            "{told}"
        );
    };
    deep("[".repeat(LEVELS));
    deep("{a: ".repeat(LEVELS));
    deep(format!("{}{}", "[".repeat(LEVELS), "]".repeat(LEVELS)));
    deep(format!("a: {}{}", "[".repeat(24), "]".repeat(24)));
    deep("- ".repeat(LEVELS));
    deep("? ".repeat(LEVELS));
    let nested = |i: usize| format!("{}a:\n", " ".repeat(i));
    deep((0..1_400).map(nested).collect());
    // Each as deep as is allowed, and each in the one before.
    let mut text = format!("a0: &a0 {}{}\n", "[".repeat(20), "]".repeat(20));
    for i in 1..60 {
        let (open, close) = ("[".repeat(20), "]".repeat(20));
        text.push_str(&format!("a{i}: &a{i} {open}*a{}{close}\n", i - 1));
    }
    deep(text);
    assert_eq!(
        refused(&"a: ".repeat(LEVELS)),
        [
            "f.yaml:1:5: not valid YAML: a colon where no key can be: indent the line as the one above it, and quote a text with ': '"
        ]
    );
}

#[test]
fn aliases() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let refs = vec![format!("*a{}", i - 1); 9].join(", ");
        bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
    }
    assert_eq!(
        refused(&bomb),
        ["f.yaml:6:10: the file's aliases stand for more than 100000 values"]
    );
    let many = "the file has more than 10000 anchors, aliases or merges";
    let aliases: String = (0..60_000).map(|i| format!("b{i}: *a\n")).collect();
    assert_eq!(
        refused(&format!("a: &a {{}}\n{aliases}")),
        [format!("f.yaml:10002:9: {many}")]
    );
    let merges: String = (0..40_000).map(|i| format!("b{i}: {{<<: *a}}\n")).collect();
    assert_eq!(
        refused(&format!("a: &a {{image: x}}\n{merges}")),
        [format!("f.yaml:10002:10: {many}")]
    );
    assert_eq!(
        refused("a: &a [*a]\n"),
        ["f.yaml:1:8: not valid YAML: an alias stands for a list or map that it is in"]
    );
}

#[test]
fn long_and_strange_texts() {
    assert_eq!(
        refused("a: {image: x}\n\0"),
        ["f.yaml:2:1: a NUL byte is not YAML"]
    );
    let key = "k".repeat(1_000_000);
    let told = "f.yaml:1:1000001: not valid YAML: a key of more than 1024 characters, or ': ' in a text without quotes";
    assert_eq!(refused(&format!("{key}: {{image: x}}\n")), [told]);
    let number = refused(&format!("a: {}\n", "9".repeat(1_000_000)));
    assert!(number[0].starts_with("f.yaml:1:4: not valid YAML: no number: `9999"));
    assert!(number[0].len() < 300);
    assert_eq!(
        refused("\u{1b}[31m: {image: x}\n"),
        ["f.yaml:1:1: not valid YAML: unexpected character: `\\u{1b}'"]
    );
    let sources = [Source {
        path: "repos.yaml".into(),
        text: "\"\\e[31m\": 1\n".into(),
        tree: Tree::User,
    }];
    let told = repos::parse(&sources).unwrap_err().to_string();
    assert_eq!(
        told,
        "repos.yaml:1:1: \\u{1b}[31m: unknown key; allowed are cache, repos"
    );
}

#[test]
fn nothing_but_mistakes() {
    let long = "memory".repeat(30);
    let keys: String = (0..5_000).map(|i| format!("  {long}{i}: 1\n")).collect();
    let told = refused(&format!("t:\n{keys}"));
    assert_eq!(told.len(), 5_000);
    assert!(told[0].contains("unknown key; allowed are accel, "));
    assert!(told[4_999].ends_with("...: unknown key"));
    let words: String = (0..20_000)
        .map(|i| format!("t{i}: {{accel: kwm{i}}}\n"))
        .collect();
    assert_eq!(refused(&words).len(), 20_000);
}
