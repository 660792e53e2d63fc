package fake

import (
	"fmt"
	"path"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkRPC returns an error if a pattern means no RPC of CRI v1.
func checkRPC(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q is not a pattern", pattern)
	}
	services := runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			if pattern != "" && matches(pattern, string(services.Get(i).Methods().Get(j).Name())) {
				return nil
			}
		}
	}
	return fmt.Errorf("no CRI v1 RPC is called %q", pattern)
}

// parseRPCError reads "Unavailable: server is not initialized yet": a gRPC code's name, a colon and the message.
func parseRPCError(text string) (*status.Status, error) {
	name, message, _ := strings.Cut(text, ":")
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if code.String() == strings.TrimSpace(name) {
			return status.New(code, strings.TrimSpace(message)), nil
		}
	}
	const example = "Unavailable: not initialized yet"
	return nil, fmt.Errorf("%q does not begin with a gRPC code and a colon, as %q", text, example)
}
