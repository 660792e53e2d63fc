package fleet

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Hint is what to do about an error of Read or Watch.
func Hint(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "kdiag fleet needs to list nodes and leases; docs/fleet.md has the ClusterRole"
	case apierrors.IsUnauthorized(err):
		return "the API server does not accept the credentials of this context: log in again, or try another --context"
	case apierrors.IsBadRequest(err):
		return "for example -l topology.kubernetes.io/zone=eu-west-1a"
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "wait longer with --timeout 2m; kubectl get --raw /readyz shows how the API server is"
	}
	return "kubectl get --raw /readyz shows whether the API server can be reached; --context NAME means another one"
}
