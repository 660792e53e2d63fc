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
	for _, service := range []grpc.ServiceDesc{
		runtimeapi.RuntimeService_ServiceDesc,
		runtimeapi.ImageService_ServiceDesc,
	} {
		for _, m := range service.Methods {
			names = append(names, m.MethodName)
		}
		for _, m := range service.Streams {
			names = append(names, m.StreamName)
		}
	}
	return names
}

// checkRPC returns an error if a pattern means no RPC that is known here.
func checkRPC(pattern string) error {
	if pattern == "" {
		return errors.New("missing")
	}
	known := false
	for _, name := range rpcNames() {
		ok, err := path.Match(pattern, name)
		if err != nil {
			return fmt.Errorf("%q is not a pattern", pattern)
		}
		known = known || ok
	}
	if !known {
		return fmt.Errorf("no CRI v1 RPC is called %q", pattern)
	}
	return nil
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
