package checks

func runtimeVersion() Check {
	return Check{
		ID:    "runtime.version",
		Title: "the runtime names itself",
		Text: "Version is a constant of the daemon: it needs no lock and no disk. Slow, it says that the daemon does not get to run; Unimplemented, that CRI v1 is not " +
			"served. The kubelet asks for it with each node status.",
		read: readRuntimeVersion,
	}
}

func readRuntimeVersion(f *Facts) Result {
	return f.readRPC(rpcVersion, func() Result {
		v := f.runtime()
		status := StatusOK
		if d := f.rpc(rpcVersion).last().Elapsed; f.Limits.SlowList > 0 && d >= f.Limits.SlowList {
			status = StatusWarning
		}
		if v.Name == "" {
			return result(status, "answered, without a name")
		}
		return result(status, "%s %s, CRI %s", v.Name, or(v.Version, "of unknown version"), or(v.APIVersion, "of unknown version"))
	})
}
