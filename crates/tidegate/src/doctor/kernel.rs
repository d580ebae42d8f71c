//! The kernel, its clock, and what an agent needs of it to have load reads answered there. `docs/kernel.md` lists the
//! sources of a load record and what each takes.

use tidegate_core::load::Rung;
use tidegate_node::AgentConfig;
use tidegate_remote::privilege::CapabilitySet;

use super::Diagnosis;
use super::machine::Machine;

/// The first kernel on which the programs are tested.
const KERNEL_MIN: Release = Release { major: 6, minor: 1 };
/// Clocks that are no register of a CPU: each reading leaves the process, or takes a microsecond.
const SLOW_CLOCKS: [&str; 5] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"];
/// From this share on, time that the host of a virtual machine gives to others disturbs what is measured.
const STEAL_MAX: f64 = 0.02;
/// What programs that answer at an interface take.
const ANSWERING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::NET_ADMIN);

/// A kernel's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Release {
    major: u32,
    minor: u32,
}

impl Release {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(|it: char| !it.is_ascii_digit());
        Some(Self {
            major: numbers.next()?.parse().ok()?,
            minor: numbers.next()?.parse().ok()?,
        })
    }
}

/// What matters to front-ends and agents alike.
pub(super) fn of_host(machine: &Machine) -> Vec<Diagnosis> {
    [clock(machine), steal(machine)]
        .into_iter()
        .flatten()
        .collect()
}

fn clock(machine: &Machine) -> Option<Diagnosis> {
    let source = machine.clock_source.as_deref()?;
    if !SLOW_CLOCKS.contains(&source) {
        return Some(Diagnosis::ok(
            "clock",
            format!("{source}, read without the kernel"),
        ));
    }
    let text = format!("{source}: each reading is a system call, and each request takes several");
    let has_tsc = machine.clock_sources.iter().any(|it| it == "tsc");
    let remedy = match (has_tsc, machine.is_virtual) {
        (true, _) => {
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, and \
             clocksource=tsc at the kernel's command line"
        }
        (false, true) => {
            "have the hypervisor offer its own clock (kvm-clock, hyperv) or an invariant TSC"
        }
        (false, false) => {
            "the kernel has given the TSC up: `dmesg | grep -i tsc` says why; tsc=reliable at its command line if that \
             is wrong"
        }
    };
    Some(Diagnosis::warn("clock", text, remedy))
}

fn steal(machine: &Machine) -> Option<Diagnosis> {
    let steal = machine.steal.filter(|_| machine.is_virtual)?;
    let text = format!(
        "a virtual machine, of whose CPU time {:.1} % went to others since its start",
        steal * 100.0
    );
    Some(if steal <= STEAL_MAX {
        Diagnosis::ok("virtual machine", text)
    } else {
        Diagnosis::warn(
            "virtual machine",
            text + ": loads seem higher than they are, and answers are late",
            "a host with CPUs of its own, or fewer neighbours",
        )
    })
}

/// What an agent can have here.
pub(super) fn of_agent(machine: &Machine, agent: &AgentConfig) -> Vec<Diagnosis> {
    let answers = [Rung::XdpNative, Rung::XdpGeneric, Rung::Tc];
    let mut all = Vec::new();
    if answers.iter().any(|rung| agent.rungs.contains(rung)) {
        all.push(answering(machine));
        all.extend(jit(machine));
    }
    all.push(realtime(machine, agent.realtime, "an agent"));
    all
}

/// Whether the kernel can answer load reads.
fn answering(machine: &Machine) -> Diagnosis {
    const CHECK: &str = "kernel";
    let release = machine
        .release
        .as_deref()
        .unwrap_or("of an unknown version");
    let version = machine.release.as_deref().and_then(Release::parse);
    let worse = "an agent answers load reads itself, as late as the machine is busy";
    if version.is_some_and(|it| it < KERNEL_MIN) {
        let text = format!("Linux {release} answers no load reads: {worse}");
        return Diagnosis::warn(CHECK, text, "Linux 6.1 or later (docs/kernel.md)");
    }
    if !machine.has_btf {
        let text = format!("Linux {release} does not describe itself: {worse}");
        let remedy = "a kernel with CONFIG_DEBUG_INFO_BTF, which makes /sys/kernel/btf/vmlinux";
        return Diagnosis::warn(CHECK, text, remedy);
    }
    if machine.lockdown.as_deref() == Some("confidentiality") {
        let text =
            format!("the lockdown of Linux {release} keeps programs from its memory: {worse}");
        let remedy = "lockdown=integrity at the kernel's command line";
        return Diagnosis::warn(CHECK, text, remedy);
    }
    if !machine.may(ANSWERING) {
        let text = format!(
            "Linux {release} can answer load reads, but this user may not have it do so ({} is missing): {worse}",
            names(ANSWERING - machine.capabilities)
        );
        let remedy = "start the agent as root, or with contrib/systemd/tidegate-agent.service";
        return Diagnosis::warn(CHECK, text, remedy);
    }
    Diagnosis::ok(CHECK, format!("Linux {release} can answer load reads"))
}

fn jit(machine: &Machine) -> Option<Diagnosis> {
    (machine.bpf_jit == Some(0)).then(|| {
        Diagnosis::warn(
            "bpf",
            "the kernel interprets its programs, which takes several times as long as compiled ones",
            "sysctl net.core.bpf_jit_enable=1",
        )
    })
}

/// Whether a thread gets real-time priority if it wants it.
pub(super) fn realtime(machine: &Machine, is_wanted: bool, what: &str) -> Diagnosis {
    const CHECK: &str = "real-time priority";
    if !is_wanted {
        return Diagnosis::ok(CHECK, format!("{what} does not ask for it"));
    }
    if machine.may(CapabilitySet::SYS_NICE) || machine.realtime_limit > 0 {
        return Diagnosis::ok(CHECK, format!("{what} may have it"));
    }
    Diagnosis::warn(
        CHECK,
        format!("{what} runs at normal priority: loads are known late while all CPUs are busy"),
        "AmbientCapabilities=CAP_SYS_NICE or LimitRTPRIO=1 in the unit, or `realtime = false` to do without",
    )
}

/// Capabilities as the kernel calls them.
pub(super) fn names(set: CapabilitySet) -> String {
    let names: Vec<_> = set.iter_names().map(|it| format!("CAP_{}", it.0)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use tidegate_node::RUNGS;

    use super::super::Level;
    use super::*;

    /// The worst of some checks.
    fn worst(all: &[Diagnosis]) -> Level {
        all.iter().map(|it| it.level).max().unwrap_or(Level::Ok)
    }

    fn agent(rungs: &[Rung]) -> AgentConfig {
        AgentConfig {
            rungs: rungs.to_vec(),
            ..AgentConfig::new(Vec::new())
        }
    }

    #[test]
    fn a_sound_machine_has_no_complaint() {
        let machine = Machine::sound();
        assert_eq!(worst(&of_host(&machine)), Level::Ok);
        assert_eq!(worst(&of_agent(&machine, &agent(&RUNGS))), Level::Ok);
    }

    #[test]
    fn a_slow_clock_is_named_with_what_makes_it_fast() {
        let mut machine = Machine::sound();
        machine.clock_source = Some("hpet".into());
        let found = clock(&machine).unwrap();
        assert_eq!(found.level, Level::Warn);
        assert!(found.remedy.unwrap().contains("echo tsc"));
        machine.clock_sources = vec!["hpet".into()];
        assert!(clock(&machine).unwrap().remedy.unwrap().contains("dmesg"));
        machine.is_virtual = true;
        assert!(
            clock(&machine)
                .unwrap()
                .remedy
                .unwrap()
                .contains("kvm-clock")
        );
        machine.clock_source = Some("kvm-clock".into());
        assert_eq!(clock(&machine).unwrap().level, Level::Ok);
    }

    #[test]
    fn a_virtual_machine_is_examined_for_its_neighbours() {
        let mut machine = Machine::sound();
        machine.steal = Some(0.2);
        assert_eq!(steal(&machine), None);
        machine.is_virtual = true;
        assert_eq!(steal(&machine).unwrap().level, Level::Warn);
        machine.steal = Some(0.01);
        assert_eq!(steal(&machine).unwrap().level, Level::Ok);
    }

    #[test]
    fn each_thing_that_the_kernels_programs_need_is_asked_for() {
        let without = |change: fn(&mut Machine)| {
            let mut machine = Machine::sound();
            change(&mut machine);
            answering(&machine)
        };
        for (change, part) in [
            (
                (|it| it.release = Some("5.10.0".into())) as fn(&mut Machine),
                "Linux 5.10.0",
            ),
            (|it| it.release = Some("6.0.19-rt".into()), "Linux 6.0.19"),
            (|it| it.has_btf = false, "does not describe itself"),
            (
                |it| it.lockdown = Some("confidentiality".into()),
                "lockdown",
            ),
            (
                |it| it.capabilities = CapabilitySet::all() - CapabilitySet::PERFMON,
                "CAP_PERFMON is missing",
            ),
        ] {
            let found = without(change);
            assert_eq!(found.level, Level::Warn, "{part}");
            assert!(found.text.contains(part), "{found:?}");
        }
        assert_eq!(
            without(|it| it.release = Some("6.1.0-13-amd64".into())).level,
            Level::Ok
        );
        assert_eq!(without(|it| it.release = None).level, Level::Ok);
    }

    #[test]
    fn an_agent_that_leaves_the_kernel_alone_needs_nothing_of_it() {
        let mut machine = Machine::sound();
        machine.has_btf = false;
        machine.bpf_jit = Some(0);
        let found = of_agent(&machine, &agent(&[Rung::AgentRealtime, Rung::Agent]));
        assert_eq!(worst(&found), Level::Ok);
        assert_eq!(of_agent(&machine, &agent(&RUNGS)).len(), 3);
    }

    #[test]
    fn real_time_priority_comes_by_capability_or_by_limit() {
        let mut machine = Machine::sound();
        machine.capabilities = CapabilitySet::empty();
        assert_eq!(realtime(&machine, true, "it").level, Level::Warn);
        assert_eq!(realtime(&machine, false, "it").level, Level::Ok);
        machine.realtime_limit = 1;
        assert_eq!(realtime(&machine, true, "it").level, Level::Ok);
    }
}
