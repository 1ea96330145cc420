//! The plugin as Slurm meets it: loaded by a program that provides SPANK's functions, one process per
//! hook, against a vmd that is a script. What needs Slurm itself is in the lab.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test without the harness"
)]

mod slurm;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};

use slurm_spank_sys as sys;
use tempfile::TempDir;

/// The plugin as built for this test.
fn plugin() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let deps = program.parent().unwrap();
    deps.join("libspank_muster.so")
}

/// What a hook returned and printed.
#[derive(Debug, PartialEq)]
struct Outcome {
    result: i32,
    lines: Vec<String>,
}

/// Runs one hook in a process of its own.
struct Hook {
    command: Command,
}

impl Hook {
    fn new(name: &str, context: u32, option: Option<&str>, arguments: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .env_clear()
            .env(slurm::HOOK, name)
            .env(slurm::PLUGIN, plugin())
            .env(slurm::CONTEXT, context.to_string())
            .args(arguments);
        if let Some(option) = option {
            command.env(slurm::OPTION, option);
        }
        Self { command }
    }

    fn env(mut self, variables: &[(&str, &str)]) -> Self {
        self.command.envs(variables.iter().copied());
        self
    }

    fn run(mut self) -> Outcome {
        let output = self.command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{}: {text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let result = lines.pop().unwrap();
        Outcome {
            result: result.strip_prefix("result ").unwrap().parse().unwrap(),
            lines,
        }
    }
}

fn silent() -> Outcome {
    Outcome {
        result: 0,
        lines: Vec::new(),
    }
}

/// A vmd that answers one call and returns what it was asked.
fn vmd(dir: &TempDir, answer: &'static str) -> (String, JoinHandle<String>) {
    let path = dir.path().join("vmd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let asked = thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let (mut got, mut chunk) = (Vec::new(), [0; 4096]);
        while !got.ends_with(b"\0") {
            let n = peer.read(&mut chunk).unwrap();
            assert!(n > 0, "the plugin hung up");
            got.extend_from_slice(&chunk[..n]);
        }
        peer.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(got).unwrap()
    });
    (format!("socket={}", path.display()), asked)
}

/// A site with an image and a template of the same name.
fn site() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let meta = root.path().join("images/meta");
    fs::create_dir_all(&meta).unwrap();
    fs::write(meta.join("tiny@0"), "{}").unwrap();
    let images = root.path().join("images");
    fs::write(
        root.path().join("repos.yaml"),
        format!("repos: [{{name: lab, path: {}}}]\n", images.display()),
    )
    .unwrap();
    fs::write(
        root.path().join("templates.yaml"),
        "tiny: {image: tiny, accel: tcg}\n",
    )
    .unwrap();
    root
}

fn submit(context: u32, option: Option<&str>, site: &Path) -> Hook {
    let dir = site.to_str().unwrap();
    Hook::new("slurm_spank_init_post_opt", context, option, &[])
        .env(&[("MUSTER_CONF_DIR", dir), ("MUSTER_USER_CONF_DIR", dir)])
}

const PROLOG: &[(&str, &str)] = &[
    ("SLURMD_NODENAME", "node1"),
    ("SLURM_JOB_ID", "7"),
    ("SLURM_JOB_UID", "1500"),
    ("SLURM_JOB_GID", "1500"),
    ("SLURM_JOB_USER", "alice"),
    ("SLURM_NODELIST", "node[1-2]"),
    ("SLURM_JOB_CPUS_PER_NODE", "2(x2)"),
    ("SLURM_JOB_PARTITION", "main"),
    ("SLURM_JOB_RESTART_COUNT", "0"),
    ("SPANK_MUSTER_REQUEST", "{\"forged\":true}"),
];

fn exports_only_what_slurm_looks_up() {
    let listing = |what: &str| {
        let output = Command::new("nm")
            .args(["-D", what])
            .arg(plugin())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<String> = text
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            .map(|name| name.split('@').next().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        listing("--defined-only"),
        [
            "plugin_name",
            "plugin_type",
            "plugin_version",
            "slurm_spank_init",
            "slurm_spank_init_failure_mode",
            "slurm_spank_init_post_opt",
            "slurm_spank_job_epilog",
            "slurm_spank_job_prolog",
            "slurm_spank_task_init",
        ]
    );
    let needed: Vec<String> = listing("--undefined-only")
        .into_iter()
        .filter(|name| name.contains("spank") || name.contains("slurm"))
        .collect();
    // All of them in Slurm 22.05.
    for name in &needed {
        assert!(slurm::PROVIDED.contains(&name.as_str()), "{name}");
    }
}

fn a_submission_without_vms_is_let_through() {
    let nowhere = Path::new("/proc/self/mem");
    assert_eq!(submit(sys::S_CTX_ALLOCATOR, None, nowhere).run(), silent());
    let none = submit(sys::S_CTX_ALLOCATOR, Some("none"), nowhere);
    assert_eq!(none.run(), silent());
    let step = submit(sys::S_CTX_LOCAL, Some("nonsense"), nowhere);
    assert_eq!(step.env(&[("SLURM_JOB_ID", "7")]).run(), silent());
    let remote = submit(sys::S_CTX_REMOTE, Some("nonsense"), nowhere);
    assert_eq!(remote.run(), silent());
}

fn a_submission_freezes_its_request() {
    let site = site();
    for context in [sys::S_CTX_ALLOCATOR, sys::S_CTX_LOCAL] {
        let outcome = submit(context, Some("tiny:2"), site.path()).run();
        let [line] = &outcome.lines[..] else {
            panic!("{outcome:?}")
        };
        let json = line.strip_prefix("setenv MUSTER_REQUEST=").unwrap();
        let request = muster_types::request::parse(json).unwrap();
        assert_eq!((outcome.result, request.vm_count()), (0, 2));
    }
}

fn the_other_options_are_heard() {
    let site = site();
    let with = |name: &str, value: &str| {
        let variable = slurm::option_variable(name);
        submit(sys::S_CTX_ALLOCATOR, Some("tiny"), site.path())
            .env(&[(variable.as_str(), value)])
            .run()
    };
    let outcome = with("vm-image", "tiny=lab:tiny@0");
    assert_eq!(outcome.result, 0, "{outcome:?}");
    for (name, value, line) in [
        (
            "vm-image",
            "tny=tiny",
            "error --vm-image: item 'tny' is not in --vm, which has tiny (did you mean 'tiny'?)",
        ),
        (
            "vm-user-data",
            "/nonexistent",
            "error --vm-user-data: '/nonexistent': no such file or directory",
        ),
        (
            "vm-wait",
            "red",
            "error --vm-wait: 'red' is none of ready, running, no",
        ),
    ] {
        let outcome = with(name, value);
        assert_eq!(
            (outcome.result, &outcome.lines[..]),
            (-1, &[line.to_owned()][..])
        );
    }
}

fn a_mistake_ends_the_command() {
    let site = site();
    let outcome = submit(sys::S_CTX_ALLOCATOR, Some("tinny"), site.path()).run();
    assert_eq!(outcome.result, -1);
    assert!(
        outcome.lines[0].starts_with("error --vm: no template 'tinny' (did you mean 'tiny'?)"),
        "{outcome:?}"
    );
    fs::write(site.path().join("templates.yaml"), "a: [\n%s%n").unwrap();
    let outcome = submit(sys::S_CTX_ALLOCATOR, Some("%n%s"), site.path()).run();
    assert_eq!(outcome.result, -1);
    for line in &outcome.lines {
        assert!(line.starts_with("error --vm: "), "{line}");
    }
}

fn a_policy_ends_the_command() {
    let site = site();
    let policy = |text: &str| fs::write(site.path().join("policy.yaml"), text).unwrap();
    let submit = || submit(sys::S_CTX_ALLOCATOR, Some("tiny:3"), site.path()).run();
    policy("max-vms-per-job: 2\n");
    assert_eq!(
        submit(),
        Outcome {
            result: -1,
            lines: vec![
                "error --vm: the job has 3 VMs, at most 2 VMs are allowed (policy.yaml:1)".into()
            ]
        }
    );
    policy("max-vms: 2\n");
    let outcome = submit();
    assert!(
        outcome.lines[0].contains("policy.yaml:1:1: max-vms: unknown key"),
        "{outcome:?}"
    );
    // This program has no options of Slurm's: partition and account are left to the nodes.
    policy("templates: {partitions: [vm], accounts: [projx]}\n");
    assert_eq!(submit().result, 0);
}

fn a_job_in_a_job_has_no_vms_by_inheritance() {
    let outer = [
        ("_SLURM_SPANK_OPTION_muster_vm", "tiny:2"),
        ("SLURM_SPANK__SLURM_SPANK_OPTION_muster_vm", "tiny:2"),
        ("SLURM_SPANK_MUSTER_REQUEST", "{}"),
        ("SLURM_JOB_ID", "7"),
    ];
    let run = |context| {
        Hook::new("slurm_spank_init_post_opt", context, None, &[])
            .env(&outer)
            .run()
    };
    assert_eq!(run(sys::S_CTX_ALLOCATOR), silent());
    // A step in the job keeps them.
    assert_eq!(run(sys::S_CTX_LOCAL).lines.len(), 3);
}

fn a_prolog_registers_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, asked) = vmd(&dir, "{}\0");
    let hook = |name, option| Hook::new(name, sys::S_CTX_JOB_SCRIPT, option, &[&socket]);
    let other = hook("slurm_spank_job_prolog", None);
    assert_eq!(other.env(PROLOG).run(), silent());
    let prolog = hook("slurm_spank_job_prolog", Some("tiny:2"));
    assert_eq!(prolog.env(PROLOG).run(), silent());
    let asked: serde_json::Value =
        serde_json::from_str(asked.join().unwrap().trim_end_matches('\0')).unwrap();
    let parameters = &asked["parameters"];
    assert_eq!(parameters["request"], "{\"forged\":true}");
    assert_eq!(parameters["facts"]["uid"], 1500);
    assert_eq!(parameters["facts"]["node"], "node1");
}

fn a_prolog_without_vmd_fails_only_if_told_to() {
    let hook = |arguments: &[&str]| {
        let name = "slurm_spank_job_prolog";
        Hook::new(name, sys::S_CTX_JOB_SCRIPT, Some("tiny"), arguments).env(PROLOG)
    };
    let outcome = hook(&["socket=/nonexistent/s"]).run();
    assert_eq!(
        outcome,
        Outcome {
            result: 0,
            lines: vec![
                "error muster: job 7: node1: vmd does not answer: connect to /nonexistent/s: \
                 No such file or directory (os error 2)"
                    .into()
            ]
        }
    );
    let outcome = hook(&["socket=/nonexistent/s", "on_node_fault=drain"]).run();
    assert_eq!(outcome.result, -1);
}

fn an_epilog_releases_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, asked) = vmd(&dir, "{\"parameters\":{\"problems\":[\"tap stays\"]}}\0");
    let name = "slurm_spank_job_epilog";
    let outcome = Hook::new(name, sys::S_CTX_JOB_SCRIPT, Some("tiny"), &[&socket])
        .env(PROLOG)
        .run();
    assert_eq!(outcome.result, 0);
    assert_eq!(outcome.lines, ["error muster: job 7: node1: tap stays"]);
    assert!(asked.join().unwrap().contains("ReleaseJob"));
}

fn a_task_waits_or_fails_with_the_reason() {
    let run = |answer| {
        let dir = tempfile::tempdir().unwrap();
        let (socket, asked) = vmd(&dir, answer);
        let name = "slurm_spank_task_init";
        let outcome = Hook::new(name, sys::S_CTX_REMOTE, Some("tiny"), &[&socket])
            .env(&[("SLURMD_NODENAME", "node2")])
            .run();
        let asked = asked.join().unwrap();
        assert!(asked.contains("\"job\":7"), "{asked}");
        outcome
    };
    assert_eq!(
        run("{\"parameters\":{\"outcome\":\"reached\",\"warnings\":[\"no KVM\"]}}\0"),
        Outcome {
            result: 0,
            lines: vec!["note muster: warning: no KVM".into()]
        }
    );
    assert_eq!(
        run("{\"parameters\":{\"outcome\":\"failed\",\"reason\":\"vm1: 100%s\"}}\0"),
        Outcome {
            result: -1,
            lines: vec!["error muster: node2: vm1: 100%s".into()]
        }
    );
    let none = Hook::new(
        "slurm_spank_task_init",
        sys::S_CTX_REMOTE,
        Some("none"),
        &["socket=/nonexistent/s"],
    );
    assert_eq!(none.run(), silent());
}

fn main() {
    if std::env::var_os(slurm::HOOK).is_some() {
        slurm::call();
        return;
    }
    let tests: &[(&str, fn())] = &[
        ("exports", exports_only_what_slurm_looks_up),
        ("no-vms", a_submission_without_vms_is_let_through),
        ("request", a_submission_freezes_its_request),
        ("options", the_other_options_are_heard),
        ("mistake", a_mistake_ends_the_command),
        ("policy", a_policy_ends_the_command),
        ("inner-job", a_job_in_a_job_has_no_vms_by_inheritance),
        ("prolog", a_prolog_registers_the_job),
        ("prolog-fault", a_prolog_without_vmd_fails_only_if_told_to),
        ("epilog", an_epilog_releases_the_job),
        ("task", a_task_waits_or_fails_with_the_reason),
    ];
    for (name, test) in tests {
        test();
        println!("host {name} ... ok");
    }
}
