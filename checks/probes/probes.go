// Package probes reads the host, the kubelet and the runtime for kdiag node and kdiag pleg. Each probe measures one thing into
// facts.Node; one that hangs is left behind. Probes judge nothing.
package probes

// Probes returns every look at the node besides the runtime's socket and the logs, those first that others wait for.
func Probes() []Probe {
	return []Probe{
		populationProbe(),
		settingsProbe(),
		foldersProbe(),
		pressureProbe(),
		memoryProbe(),
		spacesProbe(),
		writesProbe(),
		disksProbe(),
		writersProbe(),
		mountsProbe(),
		tasksProbe(),
		pidsProbe(),
		HoldersProbe(),
		filesProbe(),
		inotifyProbe(),
		conntrackProbe(),
		cgroupsProbe(),
		clockProbe(),
		systemdProbe(),
		healthProbe(),
		certificatesProbe(),
		serverProbe(),
		cniProbe(),
		driverProbe(),
		sandboxImageProbe(),
	}
}
