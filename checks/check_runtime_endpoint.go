package checks

func runtimeEndpoint() Check {
	return Check{
		ID:    "runtime.endpoint",
		Title: "which socket is asked, and why",
		Text: "The socket comes from --runtime-endpoint, $CONTAINER_RUNTIME_ENDPOINT, the running kubelet, /etc/crictl.yaml or the well-known paths, in this order; where neither a kubelet nor a socket is there, " +
			"from what the kubelet's files or the command lines of running shims name. " +
			"A verdict on a socket that the kubelet does not use says nothing about the node, so a difference is a warning.",
		read: readRuntimeEndpoint,
	}
}

func readRuntimeEndpoint(f *Facts) Result {
	e := clean(f.Runtime.Endpoint)
	switch {
	case e == "":
		return result(StatusUnknown, "no endpoint was found")
	case f.otherEndpoint():
		return result(StatusWarning, "%s, but the kubelet %s", e, f.usesOther())
	case f.Runtime.EndpointReason != "":
		return result(StatusOK, "%s: %s", e, clean(f.Runtime.EndpointReason))
	}
	return result(StatusOK, "%s (%s)", e, or(clean(f.Runtime.EndpointSource), "given"))
}
