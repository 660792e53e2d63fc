package signature

// machineEntries are about the machine as a whole.
func machineEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: MachineSuspended, Lane: Kernel, Marker: Warning,
				Title:    "the machine slept",
				Means:    "All timers stood still. Ages in later records are on the monotonic clock, which may not have counted the sleep.",
				Versions: "All.",
				Implies:  []string{"ClockJumped"},
				Sources:  []string{"kernel/power/suspend.c", "src/sleep/sleep.c (systemd)"},
			},
			forms: all("PM: suspend entry", "PM: suspend exit", "PM: hibernation: ", "ntering sleep state", "Waking up from system sleep"),
		},
		{
			Signature: Signature{
				Code: MachineBooted, Lane: Kernel, Marker: Restart,
				Title:    "the machine booted",
				Means:    "First lines of a new kernel. Everything before it belongs to another boot.",
				Versions: "All.",
				Sources:  []string{"init/main.c"},
			},
			forms: []form{
				{has: "Linux version ", or: []string{"(gcc", "gcc version", "clang version", "#1", "SMP"}},
				{has: "ommand line: BOOT_IMAGE"},
			},
		},
		{
			Signature: Signature{
				Code: MachineStopping, Lane: Node, Marker: Stop,
				Title:    "the machine is being shut down",
				Means:    "systemd has reached the end of a shutdown or reboot that somebody asked for.",
				Versions: "All.",
				Sources:  []string{"units/shutdown.target (systemd)"},
			},
			forms: []form{{
				has: "eached target ",
				or: []string{
					"target Shutdown", "target System Shutdown", "target Reboot", "target System Reboot", "target Power-Off",
					"target System Power Off", "target Power Off", "shutdown.target", "poweroff.target", "reboot.target",
				},
			}},
		},
	}
}
