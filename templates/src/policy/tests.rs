use std::collections::BTreeMap;

use muster_types::image::ImageRef;
use muster_types::request::{self, ClusterRequest, REQUEST_VERSION};
use muster_types::template::TemplateSpec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::expand::Names;
use crate::library::Library;
use crate::source::Tree;

const NOBODY: Asker<'static> = Asker {
    user: "alice",
    groups: &[],
    account: None,
    partitions: &[],
};

fn source(text: &str) -> Source {
    Source {
        path: "/etc/muster/policy.yaml".into(),
        text: text.into(),
        tree: Tree::System,
    }
}

fn policy(text: &str) -> Policy {
    Policy::parse(Some(&source(text))).unwrap()
}

fn mistakes(text: &str) -> String {
    let errors = Policy::parse(Some(&source(text))).unwrap_err().to_string();
    errors.replace("/etc/muster/", "")
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

/// Two VMs of the template `mine`.
fn request(set: impl FnOnce(&mut TemplateSpec)) -> ClusterRequest {
    let mut spec = TemplateSpec {
        image: Some(ImageRef::File { path: "/i".into() }),
        ..TemplateSpec::default()
    };
    set(&mut spec);
    let mut sets = BTreeMap::new();
    if let Some(set) = &spec.resource_set {
        sets.insert(set.clone(), Vec::<String>::new());
    }
    let json = json!({
        "version": REQUEST_VERSION,
        "definition": "mine:2",
        "submitter": "salloc",
        "groups": [{ "template": "mine", "count": 2 }],
        "resource-sets": sets,
        "templates": { "mine": spec },
    });
    request::parse(&json.to_string()).unwrap()
}

fn ib() -> ClusterRequest {
    request(|t| t.resource_set = Some("ib".into()))
}

fn names() -> Names<'static> {
    Names {
        home: Some("/home/alice"),
        user: "alice",
        env: &|_| None,
    }
}

/// What is refused where the site has these templates.
fn refused(
    policy: &Policy,
    request: &ClusterRequest,
    asker: &Asker<'_>,
    site: &str,
) -> Vec<String> {
    let mut file = source(site);
    file.path = "/etc/muster/templates.yaml".into();
    let site = Library::parse(&[file]).unwrap();
    let own = Own::by_site(request, &site, &names());
    let refusals = policy.judge(request, asker, &own);
    refusals.iter().map(ToString::to_string).collect()
}

const SET: &str =
    "resource-sets:\n  ib:\n    groups: [ib]\n    users: [bob]\n    accounts: [projx, '77']\n";

#[test]
fn without_a_file_everything_is_allowed() {
    let free = Policy::parse(None).unwrap();
    assert_eq!(free, Policy::default());
    let all = request(|t| {
        t.resource_set = Some("ib".into());
        t.qemu_bin = Some("/home/alice/qemu".into());
        t.custom_args = strings(&["-device", "x"]);
    });
    assert_eq!(refused(&free, &all, &NOBODY, ""), [""; 0]);
    for text in ["", "# nothing\n", "templates: true\ncustom-args: yes\n"] {
        assert_eq!(refused(&policy(text), &all, &NOBODY, ""), [""; 0], "{text}");
    }
    assert!(free.check_sets(&[]).is_empty() && !free.names_groups());
}

#[test]
fn a_set_is_for_any_of_its_users_groups_and_accounts() {
    let policy = policy(SET);
    assert!(policy.names_groups());
    let ask = |user: &str, groups: &[&str], account: Option<&str>| {
        let groups = strings(groups);
        let asker = Asker {
            user,
            groups: &groups,
            account,
            partitions: &[],
        };
        refused(&policy, &ib(), &asker, "mine: {image: x}\n")
    };
    assert_eq!(ask("bob", &[], Some("")), [""; 0]);
    assert_eq!(ask("alice", &["users", "ib"], Some("")), [""; 0]);
    assert_eq!(ask("alice", &[], Some("ProjX")), [""; 0]);
    assert_eq!(ask("alice", &[], Some("77")), [""; 0]);
    // Not known yet: the nodes will know.
    assert_eq!(ask("alice", &[], None), [""; 0]);
    let rule = "template 'mine': resource set 'ib' is for user 'bob' or group 'ib' or accounts \
                'projx', '77' (policy.yaml:2); you: alice; ";
    assert_eq!(
        ask("alice", &["users", "staff"], Some("other")),
        [format!(
            "{rule}your groups: users, staff; the job's account: other"
        )]
    );
    assert_eq!(
        ask("alice", &[], Some("")),
        [format!("{rule}your groups: none; the job has no account")]
    );
}

#[test]
fn groups_alone_are_judged_without_an_account() {
    let policy = policy("resource-sets:\n  ib: {groups: [ib]}\n");
    let groups = strings(&["users", "staff"]);
    let asker = Asker {
        groups: &groups,
        ..NOBODY
    };
    assert_eq!(
        refused(&policy, &ib(), &asker, ""),
        [
            "template 'mine': resource set 'ib' is for group 'ib' (policy.yaml:2); your groups: users, staff"
        ]
    );
    let many: Vec<String> = (0..40).map(|i| format!("g{i}")).collect();
    let asker = Asker {
        groups: &many,
        ..NOBODY
    };
    let told = &refused(&policy, &ib(), &asker, "")[0];
    assert!(told.ends_with("g14, g15 and 24 more"), "{told}");
}

#[test]
fn partitions_come_on_top() {
    let policy = policy("resource-sets:\n  ib: {users: [alice], partitions: [ib, big]}\n");
    let ask = |user: &str, partitions: &[&str]| {
        let partitions = strings(partitions);
        let asker = Asker {
            user,
            partitions: &partitions,
            ..NOBODY
        };
        refused(&policy, &ib(), &asker, "")
    };
    assert_eq!(ask("alice", &["big"]), [""; 0]);
    assert_eq!(ask("alice", &[]), [""; 0]);
    assert_eq!(ask("alice", &["main", "ib"]), [""; 0]);
    let rule = "template 'mine': resource set 'ib' is for jobs in partitions 'ib', 'big' \
                (policy.yaml:2); the job's partition";
    assert_eq!(ask("alice", &["main"]), [format!("{rule}: main")]);
    assert_eq!(
        ask("alice", &["main", "debug"]),
        [format!("{rule}s: main, debug")]
    );
    assert_eq!(
        ask("carol", &["big"]),
        ["template 'mine': resource set 'ib' is for user 'alice' (policy.yaml:2); you: carol"]
    );
}

#[test]
fn sets_that_no_template_names_are_judged_too() {
    let mut forged = request(|_| {});
    forged.resource_sets.insert("ib".into(), Vec::new());
    let policy = policy("resource-sets:\n  ib: {users: [bob]}\n");
    assert_eq!(
        refused(&policy, &forged, &NOBODY, ""),
        ["resource set 'ib' is for user 'bob' (policy.yaml:2); you: alice"]
    );
}

#[test]
fn vms_are_counted() {
    let two = request(|_| {});
    assert_eq!(
        refused(&policy("max-vms-per-job: 2\n"), &two, &NOBODY, ""),
        [""; 0]
    );
    assert_eq!(
        refused(&policy("\nmax-vms-per-job: 1\n"), &two, &NOBODY, ""),
        ["the job has 2 VMs, at most 1 VM is allowed (policy.yaml:2)"]
    );
}

#[test]
fn programs_are_listed_by_path_directory_or_name() {
    let policy = policy("qemu-bins: [/opt/q/bin/qemu, /opt/all/, qemu-lab]\n");
    let ask = |program: &str| {
        let request = request(|t| t.qemu_bin = Some(program.into()));
        refused(&policy, &request, &NOBODY, "mine: {image: x}\n")
    };
    for good in ["/opt/q/bin/qemu", "/opt/all/x", "qemu-lab"] {
        assert_eq!(ask(good), [""; 0], "{good}");
    }
    for bad in [
        "/opt/q/bin/qemu2",
        "/opt/q/bin",
        "/opt/all/",
        "/opt/all/..",
        "/opt/all/../x",
        "/opt/all/a/b",
        "/opt/all//x",
        "qemu",
        "./qemu-lab",
    ] {
        assert_eq!(
            ask(bad),
            [format!(
                "template 'mine': qemu-bin '{bad}' is not allowed; allowed are /opt/q/bin/qemu, what is in /opt/all/, qemu-lab (policy.yaml:1)"
            )]
        );
    }
}

#[test]
fn options_are_listed_by_name() {
    let list = policy("custom-args: [-cdrom, --snapshot]\n");
    let ask = |policy: &Policy, args: &[&str]| {
        let request = request(|t| t.custom_args = strings(args));
        refused(policy, &request, &NOBODY, "mine: {image: x}\n")
    };
    for good in [
        &[][..],
        &["-cdrom", "/x.iso"],
        &["--cdrom", "/x.iso", "-snapshot"],
        &["-snapshot", "-cdrom", "/x"],
    ] {
        assert_eq!(ask(&list, good), [""; 0], "{good:?}");
    }
    for (bad, told) in [
        (&["-device", "x"][..], "'-device' is not allowed"),
        (&["-cdrom", "-s"], "'-s' is not allowed"),
        (&["-cdrom=/x"], "'-cdrom=/x' is not allowed"),
        (&["-cdrom /x"], "'-cdrom /x' is not allowed"),
        (&["-cdrom", "-"], "'-' is not allowed"),
        (&["---cdrom"], "'---cdrom' is not allowed"),
        (&["/disk"], "'/disk' is the value of no option"),
        (
            &["-cdrom", "/x", "/disk"],
            "'/disk' is the value of no option",
        ),
    ] {
        assert_eq!(
            ask(&list, bad),
            [format!(
                "template 'mine': custom-args: {told}; allowed are -cdrom, -snapshot (policy.yaml:1)"
            )]
        );
    }
    let none = policy("custom-args: false\n");
    assert_eq!(ask(&none, &[]), [""; 0]);
    assert_eq!(
        ask(&none, &["-s"]),
        ["template 'mine': custom-args are not allowed (policy.yaml:1)"]
    );
}

#[test]
fn what_the_site_itself_sets_is_the_sites() {
    let policy = policy("custom-args: false\nqemu-bins: [/usr/bin/qemu]\ntemplates: false\n");
    let site = "gdb:\n  image: x\n  qemu-bin: /opt/qemu\n  custom-args: [-gdb, 'unix:%{homedir}/g']\n\
                mine: {image: x}\n";
    let ask = |args: &[&str], program: &str| {
        let request = request(|t| {
            t.custom_args = strings(args);
            t.qemu_bin = Some(program.into());
        });
        refused(&policy, &request, &NOBODY, site).len()
    };
    assert_eq!(ask(&["-gdb", "unix:/home/alice/g"], "/opt/qemu"), 0);
    assert_eq!(ask(&["-gdb", "unix:/home/alice/g"], "/opt/qemu2"), 1);
    assert_eq!(ask(&["-gdb", "unix:/home/bob/g"], "/opt/qemu"), 1);
    assert_eq!(ask(&["-gdb"], "/opt/qemu"), 1);
}

#[test]
fn templates_of_ones_own() {
    let mine = request(|t| t.cpus = Some(2));
    let ask = |text: &str, request: &ClusterRequest, site: &str| {
        refused(&policy(text), request, &NOBODY, site)
    };
    assert_eq!(
        ask("templates: no\n", &mine, "other: {image: x}\n"),
        ["template 'mine': it is none of the site's, and only those may be used (policy.yaml:1)"]
    );
    assert_eq!(
        ask("templates: {users: [bob]}\n", &mine, ""),
        [
            "template 'mine': it is none of the site's, and templates of one's own are for user 'bob' (policy.yaml:1); you: alice"
        ]
    );
    assert_eq!(ask("templates: {users: [alice]}\n", &mine, ""), [""; 0]);
    assert_eq!(ask("templates: no\n", &mine, "mine: {image: x}\n"), [""; 0]);
    // An image's name in the definition.
    let image = request(|t| t.resource_set = Some("default".into()));
    assert_eq!(ask("templates: no\n", &image, ""), [""; 0]);
}

#[test]
fn at_submission_the_library_knows_whose_a_value_is() {
    let file = |path: &str, tree, text: &str| Source {
        path: path.into(),
        text: text.into(),
        tree,
    };
    let policy = policy("custom-args: false\ntemplates: false\n");
    let ask = |users: &str| {
        let site = "base: {image: x, custom-args: [-s]}\nmine: {image: x2}\n";
        let library = Library::parse(&[
            file("/etc/muster/templates.yaml", Tree::System, site),
            file("/home/alice/.muster/templates.yaml", Tree::User, users),
        ])
        .unwrap();
        let request = request(|t| t.custom_args = strings(&["-s"]));
        let own = Own::by_library(&request, &library);
        let refusals = policy.judge(&request, &NOBODY, &own);
        refusals.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let own =
        "template 'mine': it is none of the site's, and only those may be used (policy.yaml:2)";
    let args = "template 'mine': custom-args are not allowed (policy.yaml:1)";
    assert_eq!(ask(""), [""; 0]);
    assert_eq!(ask("mine: {inherits: base}\n"), [own]);
    assert_eq!(
        ask("mine: {inherits: base, custom-args: [-s]}\n"),
        [own, args]
    );
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = "\
resource-set:
  ib: {groups: [ib]}
resource-sets:
  a: {}
  b: {user: [x], groups: []}
  c: {users: [1500, 'a b', x, x], partitions: 5}
qemu-bins: [/opt/*/qemu, bin/qemu, '']
custom-args: [cdrom, '-smbios type=1', 5]
max-vms-per-job: 5000
templates: alice
";
    let golden = "\
policy.yaml:1:1: resource-set: unknown key (did you mean 'resource-sets'?); allowed are custom-args, max-vms-per-job, qemu-bins, resource-sets, templates
policy.yaml:4:3: resource-sets.a: the rule keeps nobody out: name users, groups, accounts or partitions, or leave it out
policy.yaml:5:7: resource-sets.b.user: unknown key (did you mean 'users'?); allowed are accounts, groups, partitions, users
policy.yaml:5:26: resource-sets.b.groups: an empty list allows nobody: name at least one, or leave the key out
policy.yaml:6:15: resource-sets.c.users[0]: must be a name, not an id (a name that is a number in quotes), found the number 1500
policy.yaml:6:21: resource-sets.c.users[1]: must be one name, without white space and commas, found the text 'a b'
policy.yaml:6:31: resource-sets.c.users[3]: 'x' is in the list already
policy.yaml:7:13: qemu-bins[0]: patterns are not read: name the program, or all of a directory by its path with a / at the end, found the text '/opt/*/qemu'
policy.yaml:7:26: qemu-bins[1]: must be an absolute path, or a name without a /, found the text 'bin/qemu'
policy.yaml:7:36: qemu-bins[2]: must be the path of a program, or its name, found the text ''
policy.yaml:8:15: custom-args[0]: must be the name of an option with its dash and without a value, such as -cdrom, found the text 'cdrom' (did you mean '-cdrom'?)
policy.yaml:8:22: custom-args[1]: must be the name of an option with its dash and without a value, such as -cdrom, found the text '-smbios type=1'
policy.yaml:8:40: custom-args[2]: must be the name of an option with its dash and without a value, such as -cdrom, found the number 5
policy.yaml:9:18: max-vms-per-job: must be a whole number from 1 to 4096, found the number 5000
policy.yaml:10:12: templates: must be true, false or a map with users, groups, accounts or partitions, found the text 'alice'";
    assert_eq!(mistakes(text), golden);
}

#[test]
fn sets_are_those_of_the_site() {
    let policy = policy("resource-sets:\n  nat: {users: [a]}\n  ib-clutser: {users: [a]}\n");
    let told = |sets: &[&str]| {
        let errors = policy.check_sets(sets);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(told(&["nat", "ib-clutser"]), [""; 0]);
    assert_eq!(
        told(&["nat", "ib-cluster"]),
        [
            "/etc/muster/policy.yaml:3:3: resource-sets.ib-clutser: no such resource set (did you mean 'ib-cluster'?); resources.yaml has nat, ib-cluster"
        ]
    );
    assert_eq!(
        told(&[])[0],
        "/etc/muster/policy.yaml:2:3: resource-sets.nat: no such resource set: resources.yaml defines none"
    );
}

#[test]
fn the_schema_has_every_key() {
    let schema = FILE.schema();
    let properties = schema["properties"].as_object().unwrap();
    assert_eq!(properties.len(), KEYS.len());
    assert_eq!(
        properties["resource-sets"]["additionalProperties"]["properties"]
            .as_object()
            .unwrap()
            .len(),
        4
    );
    assert_eq!(properties["max-vms-per-job"]["maximum"], 4096);
}

proptest! {
    #[test]
    fn never_panics(
        key in "(resource-sets|qemu-bins|custom-args|max-vms-per-job|templates|x)",
        text in "[ab:{}\\[\\],\\-\n \"'%@!?/*.0-9]{0,60}",
    ) {
        drop(Policy::parse(Some(&source(&format!("{key}: {text}\n")))));
    }

    #[test]
    fn no_argument_passes_that_is_not_listed(args in proptest::collection::vec("(-{1,3}[ab/=]{0,3}|[ab/=]{1,3})", 0..6)) {
        let policy = policy("custom-args: [-a]\n");
        let request = request(|t| t.custom_args.clone_from(&args));
        let passed = refused(&policy, &request, &NOBODY, "mine: {image: x}\n").is_empty();
        let good = |i: usize| match args[i].as_str() {
            "-a" | "--a" => true,
            arg => !arg.starts_with('-') && i > 0 && args[i - 1].starts_with('-'),
        };
        prop_assert_eq!(passed, (0..args.len()).all(good));
    }
}
