//! What holds for all templates: rendering and reading are each other's inverse, the order of files
//! does not matter, and nothing that a file may hold ends the program.

use std::collections::BTreeMap;

use muster_templates::catalog::Catalog;
use muster_templates::expand::Names;
use muster_templates::library::Library;
use muster_templates::networks::Networks;
use muster_templates::sets::ResourceSets;
use muster_templates::source::{Source, Tree};
use muster_templates::submit::{Options, Site, Submission, Wish, resolve};
use muster_templates::template::{KEYS, Settings, UserDataSource, UsersSource};
use muster_types::ids::Mib;
use muster_types::request::Submitter;
use muster_types::template::{
    Accel, DataDisk, DiskCache, DiskModel, Display, Drive, Firmware, Gpus, HugePages, Mmp, Mount,
    MountType, Ready,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::Value as Json;

use crate::pcocc::Everything;

fn word<T: Copy + std::fmt::Debug + 'static>(
    words: &'static [(&'static str, T)],
) -> impl Strategy<Value = T> {
    (0..words.len()).prop_map(|i| words[i].1)
}

/// Text of one line with whatever YAML, JSON and terminals may stumble over.
fn line() -> impl Strategy<Value = String> {
    prop_oneof!["[^\n\0]{1,12}", "[-:#'\"%@`*&!|>{}\\[\\], ~?\\\\a0]{1,12}"]
        .prop_map(|text| format!("{text}x"))
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        "/[^\n\0]{0,12}",
        "~/[a-z% {}]{0,8}",
        "%\\{homedir\\}/[a-z]{1,8}"
    ]
}

fn size() -> impl Strategy<Value = Mib> {
    prop_oneof![
        1..5000_u64,
        (1..64_u64).prop_map(|g| g << 10),
        Just(1 << 30)
    ]
    .prop_map(Mib)
}

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9][A-Za-z0-9_.-]{0,12}"
}

fn host_name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9]{1,8}", "[a-z]{1,8}%\\{vm_rank\\}(\\.[a-z]{1,4})?"]
}

/// An argument of QEMU's: an option and its value are two.
fn argument() -> impl Strategy<Value = String> {
    line().prop_map(|text| text.trim_start_matches('-').to_owned() + "x")
}

fn mounts() -> impl Strategy<Value = BTreeMap<String, Mount>> {
    let mount = (path(), any::<bool>(), word(MountType::WORDS));
    let mount = mount.prop_map(|(path, readonly, kind)| Mount {
        path,
        readonly,
        kind,
    });
    btree_map(name(), mount, 0..4)
}

fn drives() -> impl Strategy<Value = Vec<Drive>> {
    let settings = (word(Mmp::WORDS), word(DiskCache::WORDS));
    btree_map(path(), settings, 0..4).prop_map(|drives| {
        let drive = |(path, (mmp, cache))| Drive { path, mmp, cache };
        drives.into_iter().map(drive).collect()
    })
}

fn data_disks() -> impl Strategy<Value = Vec<DataDisk>> {
    let disk = (size(), word(DiskModel::WORDS), option::of(path()));
    btree_map(name(), disk, 0..4).prop_map(|disks| {
        let disk = |(serial, (size, bus, path))| DataDisk {
            size,
            serial,
            bus,
            path,
        };
        disks.into_iter().map(disk).collect()
    })
}

fn image() -> impl Strategy<Value = String> {
    let image = (option::of(name()), name(), option::of(0..100_u32));
    let image = image.prop_map(|(repo, name, revision)| {
        let repo = repo.map(|r| r + ":").unwrap_or_default();
        let revision = revision.map(|r| format!("@{r}")).unwrap_or_default();
        format!("{repo}{name}{revision}")
    });
    prop_oneof![image, path()].prop_filter("no URL", |image| !image.contains("://"))
}

fn user_data() -> impl Strategy<Value = UserDataSource> {
    prop_oneof![
        path().prop_map(UserDataSource::Path),
        "#[^\0]{0,40}".prop_map(UserDataSource::Inline),
        "#cloud-config\n[^\0]{0,40}".prop_map(UserDataSource::Inline),
    ]
}

fn users() -> impl Strategy<Value = UsersSource> {
    prop_oneof![
        Just(UsersSource::None),
        Just(UsersSource::Me),
        path().prop_map(UsersSource::Roster),
    ]
}

fn ready() -> impl Strategy<Value = Ready> {
    prop_oneof![
        Just(Ready::Running),
        Just(Ready::Agent),
        Just(Ready::Ssh),
        Just(Ready::CloudInit),
        vec(line(), 1..4).prop_map(Ready::Command),
    ]
}

prop_compose! {
    fn machine()(
        cpus in option::of(1..=288_u32),
        memory in option::of(size()),
        accel in option::of(word(Accel::WORDS)),
        hugepages in option::of(option::of(word(HugePages::WORDS))),
        machine_type in option::of("[a-z0-9][a-z0-9._,=-]{0,12}"),
        cpu_model in option::of("[a-z0-9][a-z0-9.,+=-]{0,12}"),
        nic_model in option::of("[a-z0-9][a-z0-9-]{0,12}"),
        qemu_bin in option::of(path()),
        custom_args in option::of(vec(argument(), 0..4)),
        firmware in option::of(word(Firmware::WORDS)),
        tpm in option::of(any::<bool>()),
        remote_display in option::of(option::of(word(Display::WORDS))),
    ) -> Settings {
        Settings {
            cpus, memory, accel, hugepages, machine_type, cpu_model, nic_model, qemu_bin, custom_args,
            firmware, tpm, remote_display,
            ..Settings::default()
        }
    }
}

prop_compose! {
    fn disks(rest: Settings)(
        image in option::of(image()),
        disk_size in option::of(size()),
        disk_model in option::of(word(DiskModel::WORDS)),
        disk_cache in option::of(word(DiskCache::WORDS)),
        mount_points in option::of(mounts()),
        persistent_drives in option::of(drives()),
        data_disks in option::of(data_disks()),
        kernel in option::of(path()),
        initrd in option::of(path()),
        kernel_args in option::of(line()),
        gpus in option::of(prop_oneof![Just(Gpus::All), (0..=32_u32).prop_map(Gpus::Count)]),
        emulator_cores in option::of(0..=288_u32),
    ) -> Settings {
        Settings {
            image, disk_size, disk_model, disk_cache, mount_points, persistent_drives, data_disks,
            kernel, initrd, kernel_args, gpus, emulator_cores,
            ..rest.clone()
        }
    }
}

prop_compose! {
    fn guest(rest: Settings)(
        resource_set in option::of(name()),
        user_data in option::of(user_data()),
        instance_id in option::of(line()),
        users in option::of(users()),
        bind_vcpus in option::of(any::<bool>()),
        full_node in option::of(any::<bool>()),
        ready in option::of(ready()),
        ready_timeout in option::of(1..=86_400_u32),
        hostname in option::of(host_name()),
        dns_aliases in option::of(vec(host_name(), 0..4)),
    ) -> Settings {
        Settings {
            resource_set, user_data, instance_id, users, bind_vcpus, full_node, ready, ready_timeout,
            hostname, dns_aliases,
            ..rest.clone()
        }
    }
}

/// All keys, those that do not go together left out.
fn settings() -> impl Strategy<Value = Settings> {
    // Boxed: a strategy of so many parts is larger than a test's stack.
    let disks = machine().boxed().prop_flat_map(|rest| disks(rest).boxed());
    let all = disks.boxed().prop_flat_map(|rest| guest(rest).boxed());
    all.prop_map(|mut s| {
        if s.firmware.unwrap_or_default() != Firmware::Bios {
            s.kernel = None;
            s.machine_type = None;
        }
        if s.kernel.is_none() {
            s.initrd = None;
            s.kernel_args = None;
        }
        if s.cpus.is_some() {
            s.emulator_cores = None;
        }
        if s.memory.is_some() {
            s.hugepages = None;
        }
        s
    })
}

fn source(path: &str, text: String, tree: Tree) -> Source {
    Source {
        path: path.into(),
        text,
        tree,
    }
}

fn system(text: String) -> Source {
    source("templates.yaml", text, Tree::System)
}

/// A template but for places: the description, the settings, the tree, and the template that each key
/// comes from.
type Said = (String, Settings, Tree, Vec<(String, Tree)>);

/// What a library says of each template.
fn said(library: &Library) -> BTreeMap<String, Said> {
    let of = |t: &muster_templates::library::ResolvedTemplate| {
        let keys = t.settings().set();
        let origin = |key| t.origin(key).map(|o| (o.template.clone(), o.tree)).unwrap();
        let origins = keys.iter().map(|(key, _)| origin(key)).collect();
        let said = (t.description.clone(), t.settings().clone(), t.tree, origins);
        (t.name.clone(), said)
    };
    library.iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_rendered_is_read_again(settings in settings(), description in line()) {
        let text = settings.to_yaml("t", &description);
        let library = Library::parse(&[system(text.clone())]);
        let library = library.map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        let read = library.get("t").unwrap();
        prop_assert_eq!(read.settings(), &settings, "{}", text);
        prop_assert_eq!(&read.description, &description);
        prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }

    #[test]
    fn the_order_of_templates_and_files_does_not_matter(
        templates in vec((settings(), any::<prop::sample::Index>(), 0..3_usize), 1..10),
        order in Just((0..10_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        // Each inherits from one before it, which is no circle; the last file is the user's.
        let written: Vec<_> = templates.iter().enumerate().map(|(i, (settings, parent, file))| {
            let parents: Vec<_> = (0..i).filter(|p| *file == 2 || templates[*p].2 != 2).collect();
            let mut text = settings.to_yaml(&format!("t{i}"), "");
            if !parents.is_empty() && !text.ends_with("{}\n") {
                text.push_str(&format!("  inherits: t{}\n", parents[parent.index(parents.len())]));
            }
            (*file, text)
        }).collect();
        let library = |order: &mut dyn Iterator<Item = usize>, files: [usize; 3]| {
            let mut texts = [const { String::new() }; 3];
            for i in order.filter(|i| *i < written.len()) {
                texts[written[i].0].push_str(&written[i].1);
            }
            let tree = |file| match file { 2 => Tree::User, _ => Tree::System };
            let sources = files.map(|file| {
                source(&format!("{file}.yaml"), texts[file].clone(), tree(file))
            });
            Library::parse(&sources)
        };
        let told = |e: &muster_templates::error::ConfigErrors| {
            let mut all: Vec<_> = e.0.iter().map(|e| (e.key.clone(), e.message.clone())).collect();
            all.sort();
            all
        };
        let first = library(&mut (0..10), [0, 1, 2]);
        let other = library(&mut order.into_iter(), [1, 0, 2]);
        match (first, other) {
            (Ok(first), Ok(other)) => prop_assert_eq!(said(&first), said(&other)),
            (first, other) => prop_assert_eq!(told(&first.unwrap_err()), told(&other.unwrap_err())),
        }
    }

    #[test]
    fn whatever_keys_hold_it_is_taken_or_told(trees in vec(template(), 1..5)) {
        let text: String = trees
            .iter()
            .enumerate()
            .map(|(i, tree)| format!("t{i}: {tree}\n"))
            .collect();
        match Library::parse(&[system(text)]) {
            Ok(library) => {
                let all: Vec<_> = library.names().collect();
                if let Err(told) = submit_to(&library, &all.join(",")) {
                    prop_assert!(told.lines().all(|line| line.starts_with("--vm: ")), "{told}");
                }
            }
            Err(errors) => {
                for e in errors.0 {
                    let (line, column) = e.at.unwrap();
                    prop_assert!(line >= 1 && column >= 1, "{e}");
                    prop_assert!(!e.message.is_empty());
                }
            }
        }
    }
}

/// A value that may stand anywhere.
fn leaf() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-2..40_i64).prop_map(Json::from),
        any::<f32>().prop_map(Json::from),
        prop::sample::select(vec![
            "",
            "no",
            "4G",
            "all",
            "me",
            "none",
            "kvm",
            "tiny",
            "site:tiny@1",
            "/srv/x",
            "~/x",
            "%{homedir}/x",
            "%{vm_rank}",
            "%{nope}",
            "%",
            "https://x/y",
            "t0",
            "t1",
            "q35",
            "a b",
            "#x",
            "-x y",
            "virtio",
            "agent",
            "uefi",
        ])
        .prop_map(Json::from),
        line().prop_map(Json::from),
    ]
}

/// A template with keys of the manual and what may stand in them, or not.
fn template() -> impl Strategy<Value = Json> {
    let inner = [
        "path", "readonly", "type", "mmp", "cache", "size", "serial", "bus", "command", "/d",
        "home",
    ];
    let value = leaf().prop_recursive(3, 24, 4, move |value| {
        prop_oneof![
            vec(value.clone(), 0..4).prop_map(Json::from),
            btree_map(prop::sample::select(inner.to_vec()), value, 0..4).prop_map(|map| map
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect::<Json>()),
        ]
    });
    let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    btree_map(prop::sample::select(names), value, 0..6)
        .prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

/// Submits templates at a site without networks and images, where all files are there.
fn submit_to(library: &Library, definition: &str) -> Result<Submission, String> {
    let site = Site {
        library,
        sets: &ResourceSets::default(),
        networks: &Networks::default(),
        catalog: &Catalog::default(),
    };
    let names = Names {
        home: Some("/home/alice"),
        user: "alice",
        env: &|_| None,
    };
    let wish = Wish {
        definition,
        submitter: Submitter::Sbatch,
        options: &Options::default(),
    };
    resolve(&wish, &site, &names, &Everything).map_err(|e| e.to_string())
}
