//! The plugin in a program that has, as salloc, sbatch and srun do, its options in `opt` and
//! `slurm_option_get`: the site's policy is held against partition and account. The program of the
//! test `host` has neither.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test without the harness"
)]

#[path = "../host/slurm.rs"]
#[expect(dead_code, reason = "the other test uses the rest")]
mod slurm;

mod options;

use std::fs;
use std::process::Command;

use slurm_spank_sys as sys;

/// What the plugin says at a submission of one VM of a user's template, line by line.
fn submit(policy: &str, given: &[(&str, &str)]) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let images = root.path().join("images");
    write("images/meta/tiny@0", "{}");
    let repos = format!("repos: [{{name: lab, path: {}}}]\n", images.display());
    write("etc/repos.yaml", &repos);
    write("etc/policy.yaml", policy);
    write("user/templates.yaml", "mine: {image: tiny, accel: tcg}\n");
    let program = std::env::current_exe().unwrap();
    let output = Command::new(&program)
        .env_clear()
        .env(slurm::HOOK, "slurm_spank_init_post_opt")
        .env(slurm::PLUGIN, program.with_file_name("libspank_muster.so"))
        .env(slurm::CONTEXT, sys::S_CTX_ALLOCATOR.to_string())
        .env(slurm::OPTION, "mine")
        .env("MUSTER_CONF_DIR", root.path().join("etc"))
        .env("MUSTER_USER_CONF_DIR", root.path().join("user"))
        .envs(given.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn is_taken(lines: &[String]) -> bool {
    lines
        .iter()
        .any(|l| l.starts_with("setenv MUSTER_REQUEST="))
        && lines.ends_with(&["result 0".into()])
}

const REFUSED: &str =
    "error --vm: template 'mine': it is none of the site's, and templates of one's own are for";

fn the_partition_that_was_given_is_judged() {
    let policy = "templates: {partitions: [vm, big]}\n";
    let told = submit(policy, &[(options::PARTITION, "debug")]);
    assert_eq!(
        told,
        [
            format!(
                "{REFUSED} jobs in partitions 'vm', 'big' (policy.yaml:1); the job's partition: debug"
            ),
            "result -1".into()
        ]
    );
    for given in ["vm", "debug,big"] {
        let told = submit(policy, &[(options::PARTITION, given)]);
        assert!(is_taken(&told), "{given}: {told:?}");
    }
}

fn the_account_that_was_given_is_judged() {
    let policy = "templates: {accounts: [projx]}\n";
    let told = submit(policy, &[(options::ACCOUNT, "other")]);
    assert_eq!(
        told[0],
        format!("{REFUSED} account 'projx' (policy.yaml:1); the job's account: other")
    );
    let told = submit(policy, &[(options::ACCOUNT, "projx")]);
    assert!(is_taken(&told), "{told:?}");
}

fn what_was_not_given_is_not_judged() {
    for policy in [
        "templates: {partitions: [vm]}\n",
        "templates: {accounts: [projx]}\n",
    ] {
        let told = submit(policy, &[]);
        assert!(is_taken(&told), "{told:?}");
    }
}

fn main() {
    if std::env::var_os(slurm::HOOK).is_some() {
        options::keep();
        slurm::call();
        return;
    }
    let tests: &[(&str, fn())] = &[
        ("partition", the_partition_that_was_given_is_judged),
        ("account", the_account_that_was_given_is_judged),
        ("nothing", what_was_not_given_is_not_judged),
    ];
    for (name, test) in tests {
        test();
        println!("submission {name} ... ok");
    }
}
