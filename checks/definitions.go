package checks

import "strings"

// The cause codes of the contract that can be told from the runtime alone.
const (
	codeRuntimeDown        = "RuntimeDown"
	codeRuntimeHung        = "RuntimeHung"
	codeRuntimeSlow        = "RuntimeSlow"
	codeRuntimeNotReady    = "RuntimeNotReady"
	codeRuntimeUnsupported = "RuntimeUnsupported"
	codeNetworkNotReady    = "NetworkNotReady"
	codeCNIHung            = "CNIHung"
	codeListHang           = "ListHang"
	codeInspectHang        = "InspectHang"
	codeImageServiceHung   = "ImageServiceHung"
	codeTooManyExited      = "TooManyExited"
	codeListTooLarge       = "ListTooLarge"
	codeRelistOverloaded   = "RelistOverloaded"
)

// Those that are told by the node's own logs.
const (
	codeKubeletCrashLooping  = "KubeletCrashLooping"
	codePLEGUnhealthy        = "PLEGUnhealthy"
	codeAPIServerUnreachable = "APIServerUnreachable"
	codeOOMKilled            = "OOMKilled"
	codeKernelHung           = "KernelHung"
)

// Definitions returns every cause that kdiag knows, in the order of the contract.
func Definitions() []Definition {
	return []Definition{
		runtimeDown(),
		runtimeHung(),
		runtimeSlow(),
		runtimeNotReady(),
		runtimeUnsupported(),
		networkNotReady(),
		cniHung(),
		listHang(),
		inspectHang(),
		imageServiceHung(),
		tooManyExited(),
		listTooLarge(),
		relistOverloaded(),
		kubeletCrashLooping(),
		plegUnhealthy(),
		apiServerUnreachable(),
		oomKilled(),
		kernelHung(),
	}
}

// Lookup returns the definition of a code, in any case and with or without dashes: InspectHang, inspecthang and
// inspect-hang are the same.
func Lookup(code string) (Definition, bool) {
	plain := strings.ReplaceAll(strings.TrimSpace(code), "-", "")
	for _, d := range Definitions() {
		if strings.EqualFold(d.Code, plain) {
			return d, true
		}
	}
	return Definition{}, false
}
