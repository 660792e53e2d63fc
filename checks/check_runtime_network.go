package checks

func runtimeNetwork() Check {
	return Check{
		ID:    "runtime.network",
		Title: "the runtime's network is ready",
		Text: "NetworkReady is false while there is no usable CNI configuration. The node is NotReady then, but PLEG is not involved, and pods on the host's " +
			"network still start.",
		read: readRuntimeNetwork,
	}
}

func readRuntimeNetwork(f *Facts) Result {
	if r := f.unreached(); r != nil {
		return *r
	}
	if f.Measurement.Status == nil {
		return result(StatusUnknown, "Status was not answered")
	}
	c, ok := f.Measurement.Status.Condition(conditionNetworkReady)
	switch {
	case !ok:
		return result(StatusCritical, "NetworkReady is not reported")
	case !c.Status:
		return result(StatusCritical, "%s", conditionLine(c))
	}
	return result(StatusOK, "NetworkReady")
}
