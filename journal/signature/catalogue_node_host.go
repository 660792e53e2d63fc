package signature

// hostEntries are about logs, clock and systemd itself.
func hostEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: LogsSuppressed, Lane: Node, Marker: Warning,
				Title:    "log lines were thrown away",
				Means:    "A rate limit dropped records: what is missing here proves nothing.",
				Versions: "journald, rsyslog.",
				Sources: []string{
					"src/journal/journald-server.c (systemd)", "src/journal/journald-kmsg.c (systemd)",
					"plugins/imjournal/imjournal.c (rsyslog)",
				},
			},
			forms: []form{
				{has: " messages from ", and: []string{"uppressed "}},
				{has: "essages lost due to rate-limiting"},
				{has: "to drop messages due to rate-limiting"},
				{has: " kernel messages", and: []string{"issed "}},
			},
			reads: readUnit,
		},
		{
			Signature: Signature{
				Code: ClockChanged, Lane: Node, Marker: Warning,
				Title:    "the clock was set",
				Means:    "Wall clock times before and after do not fit together. Ages in PLEG records are not touched by it.",
				Versions: "systemd, chrony, ntpd, etcd.",
				Implies:  []string{"ClockJumped"},
				Sources:  []string{"src/core/manager.c (systemd)", "reference.c (chrony)", "ntpd/ntp_loopfilter.c (ntp)"},
			},
			forms: all(
				"Time has been changed", "ystem clock was stepped by", "ystem clock wrong by", "orward time jump detected",
				"ackward time jump detected", "lock change detected",
				"time reset +", "time reset -",
			),
		},
		{
			Signature: Signature{
				Code: SystemdUnresponsive, Lane: Node, Marker: Error,
				Title:    "systemd or D-Bus does not answer, or leaks units",
				Means:    "runc makes a transient unit for each container and waits for systemd without a limit: calls hang behind it.",
				Versions: "With the systemd cgroup driver; leaks in systemd before 247.",
				Implies:  []string{"SystemdWedged"},
				Sources:  []string{"dbus-daemon", "github.com/opencontainers/runc/libcontainer/cgroups/systemd"},
			},
			forms: join(
				all("ailed to activate service 'org.freedesktop.systemd1'", "ailed to start transient scope unit",
					"imeout waiting for systemd to", "dbus: connection closed by user"),
				[]form{{has: "rgument list too long", or: []string{"unit", "systemd", "dbus", "cgroup"}}},
				[]form{{has: "onnection timed out", and: []string{"org.freedesktop.systemd1"}}},
			),
		},
	}
}
