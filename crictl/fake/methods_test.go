package fake

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A method is one unary RPC with an empty request and a place for its response.
type method struct {
	name, path        string
	request, response proto.Message
}

// unaryMethods lists all unary RPCs of both services, from their descriptors.
func unaryMethods() []method {
	var all []method
	services := (&runtimeapi.VersionRequest{}).ProtoReflect().Descriptor().ParentFile().Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			if m.IsStreamingServer() {
				continue
			}
			all = append(all, method{
				name:    string(m.Name()),
				path:    "/" + string(services.Get(i).FullName()) + "/" + string(m.Name()),
				request: newMessage(m.Input()), response: newMessage(m.Output()),
			})
		}
	}
	return all
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // the descriptor comes from the same registry
	}
	return kind.New().Interface()
}

// dialServer opens another connection to a server.
func dialServer(t *testing.T, srv *Server) *grpc.ClientConn {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	go func() { _ = srv.Serve(lis) }() // ends with the server, which its owner stops
	conn := dial(t, "passthrough:///again", func(ctx context.Context, _ string) (net.Conn, error) {
		return lis.DialContext(ctx)
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
