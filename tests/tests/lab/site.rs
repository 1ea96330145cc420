//! The site's and the users' configuration: what is read where, who may use what, and what happens
//! where hosts disagree.

use muster_tests::lab::{Lab, User};

use crate::allocation::LONG;
use crate::in_lab;

/// Configuration files that are there for one test, on every host.
struct Files<'a> {
    lab: &'a Lab,
    names: Vec<&'static str>,
}

impl<'a> Files<'a> {
    fn install(lab: &'a Lab, files: &[(&'static str, &str)]) -> Self {
        let installed = Self {
            lab,
            names: files.iter().map(|(name, _)| *name).collect(),
        };
        for host in lab.options().hosts() {
            for (name, text) in files {
                write(lab, &host, name, text);
            }
        }
        installed
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for host in self.lab.options().hosts() {
            for name in &self.names {
                let script = format!("rm -f /etc/muster/{name}");
                drop(self.lab.root(&host, &script));
            }
        }
    }
}

fn write(lab: &Lab, host: &str, name: &str, text: &str) {
    let script = format!("cat > /etc/muster/{name} <<'END'\n{text}END\n");
    lab.root(host, &script).unwrap();
}

/// A tree of the user's own, gone when it is dropped.
struct Home<'a> {
    lab: &'a Lab,
    user: User,
}

impl<'a> Home<'a> {
    fn with(lab: &'a Lab, user: User, templates: &str) -> Self {
        let home = Self { lab, user };
        let script = format!(
            "mkdir -p ~/.muster && cat > ~/.muster/templates.yaml <<'END'\n{templates}END\n"
        );
        assert!(lab.sh("ctl", user, &script, LONG).unwrap().ok());
        home
    }
}

impl Drop for Home<'_> {
    fn drop(&mut self) {
        drop(
            self.lab
                .sh("ctl", self.user, "rm -rf ~/.muster ~/site", LONG),
        );
    }
}

/// Runs a script on the submit host; status and all that it printed.
fn run(lab: &Lab, user: User, script: &str) -> (i32, String) {
    let output = lab.sh("ctl", user, script, LONG).unwrap();
    (output.status, output.to_string())
}

/// Expects a refusal at submission: status 1, these words, and no job.
fn refused(lab: &Lab, user: User, script: &str, words: &str) {
    let (status, text) = run(lab, user, script);
    assert_eq!(status, 1, "{script}: {text}");
    assert!(text.contains(words), "{script}: {text}");
    let queue = "squeue --noheader --states=PENDING,CONFIGURING,RUNNING";
    let queue = lab.root("ctl", queue).unwrap();
    assert_eq!(queue, "", "a job was made");
}

/// Expects a job that fails on its nodes with these words.
fn failed(lab: &Lab, user: User, script: &str, words: &str) {
    let (status, text) = run(lab, user, script);
    assert_ne!(status, 0, "{script}: {text}");
    assert!(text.contains(words), "{script}: {text}");
}

fn runs(lab: &Lab, user: User, script: &str) -> String {
    let (status, text) = run(lab, user, script);
    assert_eq!(status, 0, "{script}: {text}");
    text
}

/// A copy of the site that a user makes for himself: without the policy, and changed by `edit`.
fn own_site(lab: &Lab, user: User, edit: &str) {
    let script = format!(
        "rm -rf ~/site && mkdir ~/site && cp /etc/muster/*.yaml ~/site && cd ~/site && {edit}"
    );
    let output = lab.sh("ctl", user, &script, LONG).unwrap();
    assert!(output.ok(), "{output}");
}

const NETWORKS: &str = "nat: {type: ethernet, settings: {dev-prefix: nat}}\n";
const SETS: &str = "default: {networks: [nat], default: true}\nfast: {networks: []}\n";

#[test]
fn a_users_template_inherits_from_the_sites() {
    in_lab(|lab| {
        let _home = Home::with(
            lab,
            User::Alice,
            "small: {inherits: tiny, memory: 80M}\ntiny: {inherits: tiny, memory: 72M}\n",
        );
        let shown = runs(lab, User::Alice, "muster template show small");
        assert!(
            shown.contains("'tiny', /etc/muster/templates.yaml:"),
            "{shown}"
        );
        let script = "salloc -n2 --vm=small,tiny bash -c 'muster wait --timeout 60 && muster show'";
        let shown = runs(lab, User::Alice, script);
        assert!(
            shown.contains("80 MiB") && shown.contains("72 MiB"),
            "{shown}"
        );
        // Bob has only the site's.
        refused(
            lab,
            User::Bob,
            "salloc -n1 --vm=small true",
            "--vm: no template 'small'",
        );
    });
}

#[test]
fn options_override_templates() {
    in_lab(|lab| {
        let _home = Home::with(lab, User::Alice, "bare: {accel: tcg, memory: 80M}\n");
        refused(
            lab,
            User::Alice,
            "salloc -n1 --vm=bare true",
            "bare.image: the template has no image: it can only be inherited from",
        );
        let script =
            "salloc -n1 --vm=bare --vm-image=bare=lab:tiny@0 bash -c 'muster wait --timeout 60'";
        runs(lab, User::Alice, script);
        refused(
            lab,
            User::Alice,
            "sbatch -n1 --vm=bare --vm-image=bar=tiny --vm-wait=nope --wrap=true",
            "--vm-image: item 'bar' is not in --vm, which has bare (did you mean 'bare'?)",
        );
        refused(
            lab,
            User::Alice,
            "srun -n1 --vm-user-data=/etc/hosts true",
            "--vm-wait-timeout need --vm",
        );
        // The steps of a job wait as they are told themselves.
        let script = "salloc -n1 --vm=tiny bash -c 'srun --vm-wait=no true && muster wait --timeout 60 && srun --vm-wait=sometimes true'";
        failed(
            lab,
            User::Alice,
            script,
            "--vm-wait: 'sometimes' is none of ready, running, no",
        );
    });
}

#[test]
fn a_resource_set_is_for_a_group() {
    in_lab(|lab| {
        let policy = "max-vms-per-job: 3\nresource-sets:\n  fast: {groups: [physics]}\n";
        let _files = Files::install(
            lab,
            &[
                ("networks.yaml", NETWORKS),
                ("resources.yaml", SETS),
                ("policy.yaml", policy),
            ],
        );
        let own = "mine: {inherits: tiny, resource-set: fast}\n";
        let (_alice, _bob) = (
            Home::with(lab, User::Alice, own),
            Home::with(lab, User::Bob, own),
        );
        runs(
            lab,
            User::Alice,
            "salloc -n1 --vm=mine bash -c 'muster wait --timeout 60'",
        );
        refused(lab, User::Bob, "salloc -n1 --vm=mine true", "policy.yaml:3");
        refused(lab, User::Bob, "sbatch -n1 --vm=mine --wrap=true", "'fast'");
        refused(
            lab,
            User::Alice,
            "salloc -n4 --vm=mine:4 true",
            "policy.yaml:1",
        );
        // Bob's own site has no policy: his request passes, and the nodes refuse it.
        own_site(lab, User::Bob, "rm policy.yaml");
        let script = "MUSTER_CONF_DIR=~/site srun -n1 --vm=mine true";
        failed(lab, User::Bob, script, "policy.yaml:3");
        // salloc itself ends well when its job is taken away.
        let script = "MUSTER_CONF_DIR=~/site salloc -n1 --vm=mine sleep 60";
        let (_, text) = run(lab, User::Bob, script);
        let words = "is for group 'physics' (policy.yaml:3); your groups: bob";
        assert!(text.contains(words) && text.contains("revoked"), "{text}");
    });
}

#[test]
fn a_resource_set_is_for_a_partition() {
    in_lab(|lab| {
        let policy = "resource-sets:\n  fast: {partitions: [guest]}\n";
        let _files = Files::install(
            lab,
            &[
                ("networks.yaml", NETWORKS),
                ("resources.yaml", SETS),
                ("policy.yaml", policy),
            ],
        );
        let _home = Home::with(
            lab,
            User::Alice,
            "mine: {inherits: tiny, resource-set: fast}\n",
        );
        let script = "salloc -p guest -n1 --vm=mine bash -c 'muster wait --timeout 60'";
        runs(lab, User::Alice, script);
        refused(
            lab,
            User::Alice,
            "salloc -p main -n1 --vm=mine true",
            "policy.yaml:2",
        );
        refused(
            lab,
            User::Alice,
            "srun --partition=main -n1 --vm=mine true",
            "'guest'",
        );
        let batch = "printf '#!/bin/sh\\n#SBATCH -p main -n1 --vm=mine\\ntrue\\n' > ~/b.sh; sbatch ~/b.sh; s=$?; rm ~/b.sh; exit $s";
        refused(lab, User::Alice, batch, "policy.yaml:2");
        // Nobody says which partition: only the nodes know.
        failed(lab, User::Alice, "srun -n1 --vm=mine true", "policy.yaml:2");
    });
}

#[test]
fn hosts_that_disagree_are_named() {
    in_lab(|lab| {
        let _files = Files::install(
            lab,
            &[("networks.yaml", NETWORKS), ("resources.yaml", SETS)],
        );
        let warning = "network 'nat' is not set up by this release of muster";
        let text = runs(
            lab,
            User::Alice,
            "salloc -n1 --vm=tiny bash -c 'muster wait --timeout 60'",
        );
        assert!(text.contains(warning), "{text}");
        // On one node the file is another one.
        let node = lab.options().node_names().pop().unwrap();
        let other = NETWORKS.replace("dev-prefix: nat", "dev-prefix: nat, mtu: 9000");
        own_site(lab, User::Alice, "true");
        write(lab, &node, "networks.yaml", &other);
        let nodes = format!("-N{}", lab.options().node_names().len());
        let script = format!("MUSTER_CONF_DIR=~/site srun {nodes} -n2 --vm=tiny:2 true");
        let (status, text) = run(lab, User::Alice, &script);
        assert_ne!(status, 0, "{text}");
        for part in ["network 'nat'", "mtu", "9000", "1500", &node] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // The set, too, is the node's.
        write(lab, &node, "networks.yaml", NETWORKS);
        write(
            lab,
            &node,
            "resources.yaml",
            "default: {networks: [], default: true}\n",
        );
        let (status, text) = run(lab, User::Alice, &script);
        assert_ne!(status, 0, "{text}");
        assert!(text.contains("resource set 'default'"), "{text}");
        // A file that cannot be read is the node's fault, and the message says so.
        write(lab, &node, "networks.yaml", "nat: {type: ethernt}\n");
        let (status, text) = run(lab, User::Alice, &script);
        assert_ne!(status, 0, "{text}");
        assert!(text.contains("/etc/muster/networks.yaml:1:"), "{text}");
        lab.sh("ctl", User::Alice, "rm -rf ~/site", LONG).unwrap();
    });
}

#[test]
fn the_configuration_is_checked_and_shown() {
    in_lab(|lab| {
        let checked = runs(lab, User::Alice, "muster config check");
        assert!(checked.contains("0 errors"), "{checked}");
        runs(
            lab,
            User::Alice,
            "muster config show && muster config show --json >/dev/null",
        );
        let _files = Files::install(
            lab,
            &[
                ("networks.yaml", NETWORKS),
                (
                    "resources.yaml",
                    "default: {networks: [nta], default: true}\n",
                ),
            ],
        );
        let (status, text) = run(lab, User::Alice, "muster config check");
        assert_eq!(status, 1, "{text}");
        let words = "/etc/muster/resources.yaml:1:22: default.networks[0]";
        assert!(text.contains(words), "{text}");
        assert!(text.contains("did you mean 'nat'?"), "{text}");
        refused(
            lab,
            User::Alice,
            "salloc -n1 --vm=tiny true",
            "did you mean 'nat'?",
        );
    });
}
