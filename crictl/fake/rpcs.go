package fake

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rpcNames returns the short names of all CRI v1 RPCs.
func rpcNames() []string {
	var names []string
	for _, service := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range service.Methods {
			names = append(names, m.MethodName)
		}
		for _, m := range service.Streams {
			names = append(names, m.StreamName)
		}
	}
	return names
}

// rpcsMatching returns the RPCs that a pattern means. It is an error if there are none.
func rpcsMatching(pattern string) (map[string]bool, error) {
	if pattern == "" {
		return nil, errors.New("missing")
	}
	matched := map[string]bool{}
	for _, name := range rpcNames() {
		ok, err := path.Match(pattern, name)
		if err != nil {
			return nil, fmt.Errorf("%q is not a pattern", pattern)
		}
		if ok {
			matched[name] = true
		}
	}
	if len(matched) == 0 {
		return nil, fmt.Errorf("no CRI v1 RPC is called %q", pattern)
	}
	return matched, nil
}

// rpcError is what a fault's error text means.
type rpcError struct {
	code    codes.Code
	message string
}

// parseRPCError reads "Unavailable: server is not initialized yet": a gRPC code's name, a colon and the message.
func parseRPCError(text string) (rpcError, error) {
	name, message, _ := strings.Cut(text, ":")
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if code.String() == strings.TrimSpace(name) {
			return rpcError{code: code, message: strings.TrimSpace(message)}, nil
		}
	}
	return rpcError{}, fmt.Errorf("%q does not begin with a gRPC code and a colon, as \"Unavailable: not initialized yet\"", text)
}
