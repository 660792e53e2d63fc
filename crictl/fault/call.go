package fault

import (
	"context"
	"errors"
	"io"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/kdiag/kdiag/crictl/fake"
)

// A call is one RPC that passes through the proxy.
type call struct {
	proxy   *Proxy
	server  grpc.ServerStream // towards the caller
	path    string            // /runtime.v1.RuntimeService/Version
	name    string            // Version
	request func() proto.Message
}

// handle serves every RPC, also unknown ones.
func (p *Proxy) handle(_ any, server grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(server)
	c := &call{proxy: p, server: server, path: full, name: path.Base(full)}
	p.stats.add(c.name, Count{Calls: 1})
	var first frame
	err := server.RecvMsg(&first)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	empty := err != nil
	c.request = sync.OnceValue(func() proto.Message { return decode(full, first.data) })
	verdict, err := c.judge(server.Context())
	if err != nil {
		return err
	}
	// The call to the runtime carries the caller's deadline, and ends with the caller's.
	incoming, _ := metadata.FromIncomingContext(server.Context())
	backend, err := p.conn.NewStream(metadata.NewOutgoingContext(server.Context(), incoming.Copy()),
		&grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, full, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		return err
	}
	if !empty {
		_ = backend.SendMsg(&first) // an error shows when the answer is received
	}
	_ = backend.CloseSend()
	return c.answer(backend, verdict)
}

// judge injects the fault that the rules have for the call, before it goes to the runtime. A call that waits when the
// rules change is judged again.
func (c *call) judge(ctx context.Context) (fake.Verdict, error) {
	for {
		set := c.proxy.rules.Load()
		verdict := set.Judge(c.name, sync.OnceValue(func() fake.Target {
			return c.proxy.objects.target(ctx, c.request(), set.NeedNames())
		}))
		if verdict.Number >= 0 {
			c.proxy.stats.add(c.name, Count{Faulted: 1})
			if c.proxy.log != nil {
				c.proxy.log(Injection{
					RPC: c.name, Number: verdict.Number, Target: c.proxy.objects.target(ctx, c.request(), false),
				})
			}
		}
		err := verdict.Wait(ctx)
		if !errors.Is(err, fake.ErrEnded) {
			return verdict, err
		}
	}
}

// answer passes on the messages of the runtime until it ends the call.
func (c *call) answer(backend grpc.ClientStream, verdict fake.Verdict) error {
	if header, err := backend.Header(); err == nil && header != nil && !verdict.Fault.Drop {
		if err := c.server.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		var message frame
		err := backend.RecvMsg(&message)
		if verdict.Fault.Drop {
			return fake.Drop(c.server.Context())
		}
		if err != nil {
			c.server.SetTrailer(backend.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := c.pass(&message, verdict); err != nil {
			return err
		}
	}
}

// pass sends one message of the runtime to the caller.
func (c *call) pass(message *frame, verdict fake.Verdict) error {
	p := c.proxy
	if conditions := p.conditions.Load(); conditions != nil && len(*conditions) > 0 && c.path == statusPath {
		message.data = withConditions(message.data, *conditions)
	}
	if verdict.PerItem != 0 {
		err := verdict.WaitItems(c.server.Context(), itemsIn(message.data))
		if err != nil && !errors.Is(err, fake.ErrEnded) {
			return err
		}
	}
	message.data = append(message.data, fake.Padding(verdict.Fault.Oversize-len(message.data))...)
	return c.server.SendMsg(message)
}
