//! The programs: opened, set, loaded, and shown where to look.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{
    Map, MapCore as _, MapFlags, MapMut, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramInput, ProgramMut, set_print,
};

use super::KernelError;

/// The programs as the kernel takes them; see `bpf/`, from which `cargo xtask bpf` makes them.
const OBJECT: &[u8] = include_bytes!("../../bpf/responder.bpf.o");
/// Where constants and variables of the programs lie.
const CONSTANTS: &str = ".rodata";
const VARIABLES: &str = ".bss";
/// The program that finds what the others read.
pub(super) const FIND: &str = "find_addresses";
/// Most characters of what the kernel says about a refused program.
const SAID_MAX: usize = 400;

/// What the loading library said last: its errors are numbers without it.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Programs, ready to be attached.
#[derive(Debug)]
pub(super) struct Programs {
    object: Object,
}

/// The offset of each variable of a section.
#[derive(Debug)]
struct Section(BTreeMap<String, (usize, usize)>);

/// A value for a constant of the programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting(pub(super) &'static str, pub(super) u64);

impl Programs {
    /// Loads the programs of these names, and `find_addresses`, with these settings.
    pub(super) fn load(names: &[&str], settings: &[Setting]) -> Result<Self, KernelError> {
        listen();
        let mut open = ObjectBuilder::default()
            .name("tidegate")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(refused("open the programs"))?;
        for mut program in open.progs_mut() {
            let wanted = names.iter().any(|name| program.name() == OsStr::new(name));
            program.set_autoload(wanted || program.name() == OsStr::new(FIND));
        }
        set_constants(&mut open, settings)?;
        let object = open.load().map_err(refused("load the programs"))?;
        Ok(Self { object })
    }

    /// A loaded program.
    pub(super) fn program(&self, name: &str) -> Result<ProgramMut<'_>, KernelError> {
        let found = self
            .object
            .progs_mut()
            .find(|it| it.name() == OsStr::new(name));
        found.ok_or_else(|| KernelError::Object(format!("no program {name}")))
    }

    /// A map.
    pub(super) fn map(&self, name: &str) -> Result<Map<'_>, KernelError> {
        let found = self.object.maps().find(|map| is_named(map.name(), name));
        found.ok_or_else(|| KernelError::Object(format!("no map {name}")))
    }

    /// A map that can be pinned.
    pub(super) fn map_mut(&mut self, name: &str) -> Result<MapMut<'_>, KernelError> {
        let mut maps = self.object.maps_mut();
        let found = maps.find(|map| is_named(map.name(), name));
        found.ok_or_else(|| KernelError::Object(format!("no map {name}")))
    }

    /// Calls a program of the `syscall` kind, in this process.
    pub(super) fn call(&self, name: &str) -> Result<(), KernelError> {
        let output = self
            .program(name)?
            .test_run(ProgramInput::default())
            .map_err(refused(if name == FIND {
                "look for the kernel's counters"
            } else {
                "start the kernel's timer"
            }))?;
        match output.return_value {
            0 => Ok(()),
            code => Err(KernelError::Object(format!("{name} ended with {code}"))),
        }
    }

    /// Writes a variable. Not while programs that change variables run: the others are written
    /// back as they were read.
    pub(super) fn set(&self, name: &'static str, value: u64) -> Result<(), KernelError> {
        let section = Section::of(VARIABLES)?;
        let map = self.map(VARIABLES)?;
        let key = 0_u32.to_ne_bytes();
        let mut bytes = map
            .lookup(&key, MapFlags::ANY)
            .map_err(refused("read the programs' variables"))?
            .ok_or_else(|| KernelError::Object("no variables".into()))?;
        section.put(&mut bytes, &Setting(name, value))?;
        map.update(&key, &bytes, MapFlags::ANY)
            .map_err(refused("write the programs' variables"))
    }
}

/// Whether a map is meant; the loader puts a prefix before the names of sections.
fn is_named(name: &OsStr, wanted: &str) -> bool {
    let section = wanted.starts_with('.') && name.to_string_lossy().ends_with(wanted);
    name == OsStr::new(wanted) || section
}

impl Section {
    /// By the programs' own description of themselves.
    fn of(name: &str) -> Result<Self, KernelError> {
        let missing = || KernelError::Object(format!("the programs do not describe {name}"));
        let btf = Btf::from_raw("tidegate", OBJECT)
            .map_err(refused("read the programs' description"))?
            .ok_or_else(missing)?;
        let section: types::DataSec<'_> = btf.type_by_name(name).ok_or_else(missing)?;
        let of = |it: types::VarSecInfo| {
            let variable: types::Var<'_> = btf.type_by_id(it.ty)?;
            let name = variable.name()?.to_str()?.to_owned();
            Some((name, (it.offset as usize, it.size)))
        };
        Ok(Self(section.iter().filter_map(of).collect()))
    }

    fn put(&self, bytes: &mut [u8], Setting(name, value): &Setting) -> Result<(), KernelError> {
        let wrong = || KernelError::Object(format!("the programs have no setting {name}"));
        let (offset, size) = *self.0.get(*name).ok_or_else(wrong)?;
        let bytes = bytes.get_mut(offset..offset + size).ok_or_else(wrong)?;
        bytes.copy_from_slice(value.to_le_bytes().get(..size).ok_or_else(wrong)?);
        Ok(())
    }
}

fn set_constants(open: &mut OpenObject, settings: &[Setting]) -> Result<(), KernelError> {
    let section = Section::of(CONSTANTS)?;
    let mut map = open
        .maps_mut()
        .find(|map| is_named(map.name(), CONSTANTS))
        .ok_or_else(|| KernelError::Object("the programs have no settings".into()))?;
    let bytes = map
        .initial_value_mut()
        .ok_or_else(|| KernelError::Object("the programs' settings have no value".into()))?;
    settings
        .iter()
        .try_for_each(|setting| section.put(bytes, setting))
}

/// Where the kernel's per-CPU variables lie beside its run queues, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PerCpu {
    pub(super) cpustat: i64,
    pub(super) softirq: i64,
    pub(super) softirq_bytes: usize,
}

impl PerCpu {
    /// By the kernel's description of itself; zero for what this kernel has not.
    pub(super) fn find() -> Result<Self, KernelError> {
        let btf = Btf::from_vmlinux().map_err(refused("read /sys/kernel/btf/vmlinux"))?;
        let missing = || KernelError::Object("the kernel does not describe .data..percpu".into());
        let section: types::DataSec<'_> = btf.type_by_name(".data..percpu").ok_or_else(missing)?;
        let mut offsets = BTreeMap::new();
        for it in section.iter() {
            let variable: Option<types::Var<'_>> = btf.type_by_id(it.ty);
            if let Some(name) = variable.and_then(|variable| variable.name()) {
                offsets.insert(name.to_owned(), (i64::from(it.offset), it.size));
            }
        }
        let offset = |name: &str| offsets.get(OsStr::new(name)).copied();
        let (queues, _) = offset("runqueues").ok_or_else(missing)?;
        let beside = |name| offset(name).map_or(0, |(offset, _)| offset - queues);
        // From 6.15 a variable of its own; until 6.1 the first member of `irq_stat`. Between,
        // it lies within another one, and is done without.
        let (softirq, softirq_bytes) = match offset("__softirq_pending") {
            Some((offset, bytes)) => (offset - queues, bytes),
            None if offset("pcpu_hot").is_none() => (beside("irq_stat"), 4),
            None => (0, 0),
        };
        Ok(Self {
            cpustat: beside("kernel_cpustat"),
            softirq,
            softirq_bytes,
        })
    }
}

/// Where the kernel says that its symbols are: the second way to its run queues, for a kernel
/// without group scheduling. It takes `CAP_SYSLOG`, and a kernel that lists data at all
/// (`KALLSYMS_ALL`, as Debian's do).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbols {
    pub(super) runqueues: u64,
    pub(super) per_cpu_offset: u64,
}

impl Symbols {
    /// Nothing where the kernel does not tell.
    pub(super) fn find() -> Option<Self> {
        let file = std::fs::File::open("/proc/kallsyms").ok()?;
        Self::of(BufReader::new(file).lines().map_while(Result::ok))
    }

    pub(super) fn of(mut lines: impl Iterator<Item = String>) -> Option<Self> {
        let (mut runqueues, mut per_cpu_offset) = (None, None);
        while runqueues.is_none() || per_cpu_offset.is_none() {
            let line = lines.next()?;
            let mut words = line.split(' ');
            let (address, _kind, name) = (words.next()?, words.next(), words.next());
            // A process without the right to see it reads zero.
            let address = || u64::from_str_radix(address, 16).ok().filter(|it| *it != 0);
            match name {
                Some("runqueues") => runqueues = Some(address()?),
                Some("__per_cpu_offset") => per_cpu_offset = Some(address()?),
                _ => {}
            }
        }
        Some(Self {
            runqueues: runqueues?,
            per_cpu_offset: per_cpu_offset?,
        })
    }
}

/// For `map_err`: the kernel refused `what`, with what the library said about it.
pub(super) fn refused(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> KernelError {
    move |error| {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = error.to_string();
        let verdict = said.iter().find_map(|text| verdict(text));
        let first = said.iter().map(|text| text.trim()).next();
        if let Some(telling) = verdict.or(first) {
            // Writing to a String cannot fail.
            write!(text, " ({telling})").unwrap_or_default();
        }
        // A program that the verifier does not take is refused as if it were forbidden.
        let forbidden = error.kind() == libbpf_rs::ErrorKind::PermissionDenied;
        let permission = forbidden && verdict.is_none();
        said.clear();
        let cut = text.chars().take(SAID_MAX).collect();
        KernelError::Refused {
            what,
            error: cut,
            permission,
        }
    }
}

/// What the kernel's verifier has against a program: the last line of its log but for the sums.
fn verdict(said: &str) -> Option<&str> {
    let log = said.split_once("-- BEGIN PROG LOAD LOG --")?.1;
    let log = log.split("-- END PROG LOAD LOG --").next()?;
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.rfind(|line| !line.starts_with("processed "))
}

/// From now on what the library says is kept for [`refused`], not printed.
pub(super) fn listen() {
    set_print(Some((PrintLevel::Warn, keep)));
    SAID.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Most lines kept of what the library says.
const LINES_KEPT: usize = 16;

fn keep(_: PrintLevel, line: String) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() < LINES_KEPT {
        said.push(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_word_is_its_reason() {
        let said = "libbpf: prog 'p': -- BEGIN PROG LOAD LOG --\n0: (b7) r1 = 0\n\
            R1 invalid mem access 'scalar'\nprocessed 3 insns\n-- END PROG LOAD LOG --\n";
        assert_eq!(verdict(said), Some("R1 invalid mem access 'scalar'"));
        assert_eq!(verdict("libbpf: failed"), None);
    }
}
