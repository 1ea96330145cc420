//! No target: prints the words of all configuration files in the form in which libFuzzer takes them to make inputs of.
//! It is built like one, since all code is instrumented, and ends before libFuzzer begins.

#![no_main]

use libfuzzer_sys::fuzz_target;
use muster_templates::key::{File, Shape};
use std::collections::BTreeSet;

const FILES: [File; 6] = [
    muster_templates::template::FILE,
    muster_templates::networks::FILE,
    muster_templates::sets::FILE,
    muster_templates::policy::FILE,
    muster_templates::repos::FILE,
    muster_templates::batch::FILE,
];

/// What YAML, requests and lists are made of.
const SYNTAX: [&str; 30] = [
    "\n  ",
    "\n    ",
    "\n- ",
    ": ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "\n===\n",
    "&a ",
    "*a",
    "<<: *a",
    "<<: ",
    "inherits: ",
    "%{env:A}",
    "%{vm_rank}",
    "%{homedir}",
    "#cloud-config\n",
    "|\n",
    ">-\n",
    "10.0.0.0/8",
    "fd00::/64",
    "52:54:00",
    "4G",
    "\"version\":2",
    "\"groups\":[",
    "\"count\":1",
    "[1-3]",
    "(x2)",
];

fuzz_target!(
    init: print_and_end(),
    |_bytes: &[u8]| {}
);

fn print_and_end() {
    let mut words: BTreeSet<String> = SYNTAX.map(str::to_owned).into();
    for file in FILES {
        collect(&file.shape, &mut words);
    }
    for word in words {
        let bytes: String = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
        println!("\"{bytes}\"");
    }
    std::process::exit(0);
}

fn collect(shape: &Shape, words: &mut BTreeSet<String>) {
    match shape {
        Shape::Keys(keys) => {
            for key in *keys {
                words.insert(format!("{}: ", key.name));
                words.insert(format!("\"{}\":", key.name));
                collect(&key.shape, words);
            }
        }
        Shape::Words(all) => words.extend(all.iter().map(ToString::to_string)),
        Shape::List(inner) | Shape::Named(inner) => collect(inner, words),
        Shape::Either(shapes) => shapes.iter().for_each(|shape| collect(shape, words)),
        Shape::Text | Shape::Number(..) | Shape::Bool | Shape::Size | Shape::Anything => {}
    }
}
