package signature

const (
	fromRuntime = "from runtime service failed"
	fromImages  = "from image service failed"
)

// removed are the texts of a call on an object that is gone: the usual race with its removal. 5 is gRPC's NotFound.
func removed() []string {
	return []string{"code = NotFound", "code = 5 ", "o such container"}
}

func calls(rpcs ...string) []form {
	return []form{{has: fromRuntime, rpcs: rpcs}}
}

func join(groups ...[]form) []form {
	var out []form
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

// callEntries are the kubelet's failing calls of the runtime as a whole.
func callEntries() []entry {
	return []entry{
		{
			Signature: Signature{
				Code: SanityCheckFailed, Lane: Kubelet, Marker: Error,
				Title: "Status or Version failed",
				Means: "The runtime did not answer the plainest questions. 30 seconds after the last good Status the kubelet says that the " +
					"runtime is down.",
				Versions: "All.",
				Implies:  []string{"RuntimeDown", "RuntimeHung", "CNIHung"},
				Sources:  []string{"pkg/kubelet/kubelet.go", "staging/src/k8s.io/cri-client/pkg/remote_runtime.go"},
			},
			forms: join(all("untime sanity check failed", "untime status is nil"), calls("Status", "Version")), reads: readCall,
		},
		{
			Signature: Signature{
				Code: RuntimeUnreachable, Lane: Kubelet, Marker: Error,
				Title:    "no connection to the runtime",
				Means:    "Nothing listens on the runtime's socket, or the daemon went away in the middle of a call.",
				Versions: "All; the wording is gRPC's or the docker client's.",
				Implies:  []string{"RuntimeDown"},
				Sources:  []string{"google.golang.org/grpc/internal/transport", "github.com/docker/docker/client"},
			},
			forms: []form{
				{has: "rror while dialing", and: []string{"dial unix"}, not: []string{"/kubelet/plugins", "csi.sock", "/device-plugins/"}},
				{has: "annot connect to the Docker daemon"},
				{has: "annot connect to Docker endpoint"},
				{has: "error reading from server", not: []string{"/kubelet/plugins", "csi.sock"}},
				{has: "transport is closing", and: []string{"rpc error"}},
			},
			reads: readCall,
		},
		{
			Signature: Signature{
				Code: CRIUnsupported, Lane: Kubelet, Marker: Error,
				Title: "the socket does not speak CRI v1",
				Means: "Something answers, but not the CRI service that this kubelet wants: CRI plugin disabled or not loaded, wrong socket, " +
					"or too old a runtime.",
				Versions: "All; the validation on start from 1.26.",
				Implies:  []string{"RuntimeUnsupported"},
				Sources:  []string{"staging/src/k8s.io/cri-client/pkg/remote_runtime.go"},
			},
			forms: join( // a kubelet that starts validates a socket where nothing listens, or nobody answers, in the same words
				all("unknown service runtime.v1"),
				unless([]string{"rror while dialing", "code = DeadlineExceeded"}, all("validate CRI v1 runtime API", "validate CRI v1 image API")),
			),
			reads: readCall,
		},
		{
			Signature: Signature{
				Code: RelistFailed, Lane: Kubelet, Marker: Error,
				Title: "relist failed",
				Means: "PLEG could not list pods or containers. Every failure leaves the age growing; the error says whether the runtime " +
					"hung, refused or sent too much.",
				Versions: "All. The 1.36 line for one pod (\"Unable to retrieve pod\") is harmless and not meant.",
				Implies:  []string{"RuntimeHung", "ListHang", "RuntimeDown", "ListTooLarge"},
				Sources:  []string{"pkg/kubelet/pleg/generic.go"},
			},
			forms: all("GenericPLEG: Unable to retrieve pods"), reads: readCall,
		},
		{
			Signature: Signature{
				Code: ListFailed, Lane: Kubelet, Marker: Error,
				Title:    "a list call failed",
				Means:    "ListPodSandbox or ListContainers failed. If only ListContainers does, a container's status lock is held in the runtime.",
				Versions: "All. A second line of the caller follows up to 1.35; streaming lists from 1.36.",
				Implies:  []string{"RuntimeHung", "ListHang", "RuntimeDown", "ListTooLarge"},
				Sources: []string{
					"staging/src/k8s.io/cri-client/pkg/remote_runtime.go", "pkg/kubelet/kuberuntime/kuberuntime_sandbox.go",
					"pkg/kubelet/kubelet_pods.go",
				},
			},
			forms: join(
				calls("ListContainers", "ListPodSandbox"),
				all("StreamPodSandboxes recv failed", "StreamContainers recv failed", "ListPodSandbox failed", "ListContainers failed",
					"getKubeletContainers failed",
					"getKubeletSandboxes failed", "ailed to list pod sandboxes", "ailed to list all containers", "rror listing containers",
					"ailed cleaning pods"),
			),
			reads: readCall,
		},
		{
			Signature: Signature{
				Code: MessageTooLarge, Lane: Kubelet, Marker: Error,
				Title: "a message is over gRPC's limit",
				Means: "Too many containers, sandboxes or images for one answer. Lists fail at once, garbage collection with them: it does not heal by itself. " +
					"\"trying to send\" is the runtime's limit, \"received\" the kubelet's.",
				Versions: "All. The kubelet's limit is 16 MiB (4 to 8 MiB before 1.12), containerd's 16 MiB, CRI-O's 80 MiB.",
				Implies:  []string{"ListTooLarge", "TooManyExited"},
				Sources:  []string{"google.golang.org/grpc/rpc_util.go"},
			},
			forms: all("message larger than max"), reads: readCall | readSizes,
		},
	}
}
