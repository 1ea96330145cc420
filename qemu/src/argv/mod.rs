//! The command line, in a fixed order; one file per family of options.

mod boards;
mod channels;
mod disks;
mod process;
mod value;

use crate::machine::Machine;
use value::Value;

/// The program.
pub(crate) const PROGRAM: &str = "qemu-system-x86_64";

/// Options as they are collected.
#[derive(Debug, Default)]
struct Arguments(Vec<String>);

impl Arguments {
    /// An option without a value.
    fn flag(&mut self, option: &str) {
        self.0.push(option.to_owned());
    }

    /// An option with a value.
    fn option(&mut self, option: &str, value: Value) {
        self.0.push(option.to_owned());
        self.0.push(value.into_string());
    }
}

impl Machine {
    /// The program to start, to be found in `PATH`.
    pub const PROGRAM: &str = PROGRAM;

    /// The arguments of the program, without its name.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        let mut out = Arguments::default();
        process::render(self, &mut out);
        boards::render(self, &mut out);
        channels::render(self, &mut out);
        disks::render(self, &mut out);
        out.0
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "golden tests read and rewrite their files"
)]
mod tests {
    use std::path::Path;

    use crate::machine::Machine;

    /// Every folder of `testdata` holds a machine and the command line it becomes, an argument a line.
    #[test]
    fn machines_become_command_lines() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
        let mut cases = 0;
        for entry in std::fs::read_dir(&root).unwrap() {
            let case = entry.unwrap().path();
            let text = std::fs::read_to_string(case.join("machine.json")).unwrap();
            let machine: Machine = serde_json::from_str(&text).unwrap();
            let argv = machine.argv().join("\n") + "\n";
            let golden = case.join("argv");
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&golden, &argv).unwrap();
            }
            let expected = std::fs::read_to_string(&golden).unwrap();
            assert_eq!(argv, expected, "{}", case.display());
            cases += 1;
        }
        assert!(cases >= 4, "{cases} cases in {}", root.display());
    }
}
