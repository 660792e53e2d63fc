package checks

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
		holdersProbe(),
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
