// Health serves the gRPC health protocol at the address in its first argument: SERVING unless the file in its second
// argument exists.
package main

import (
	"context"
	"net"
	"os"

	"google.golang.org/grpc"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
)

type health struct {
	healthapi.UnimplementedHealthServer
	ill string
}

func (h health) Check(_ context.Context, req *healthapi.HealthCheckRequest) (*healthapi.HealthCheckResponse, error) {
	if _, err := os.Stat(h.ill); err == nil && req.GetService() == "ready" {
		return &healthapi.HealthCheckResponse{Status: healthapi.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &healthapi.HealthCheckResponse{Status: healthapi.HealthCheckResponse_SERVING}, nil
}

func main() {
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	srv := grpc.NewServer()
	healthapi.RegisterHealthServer(srv, health{ill: os.Args[2]})
	panic(srv.Serve(l))
}
