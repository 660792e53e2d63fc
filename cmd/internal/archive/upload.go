package archive

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// UploadFlags say where archives are sent.
type UploadFlags struct{ URL, Method, Headers, CA string }

// AddUpload adds the flags.
func (u *UploadFlags) AddUpload(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&u.URL, "upload", "",
		"send archives to this URL, or to that in @FILE; may have {node}, {time} and {cause}")
	fs.StringVar(&u.Method, "upload-method", http.MethodPut, "PUT or POST")
	fs.StringVar(&u.Headers, "upload-headers", "", "file with headers of the upload, one NAME: VALUE a line")
	fs.StringVar(&u.CA, "upload-ca", "", "file with the certificates of authorities that the server's may have")
}

// CheckUpload returns an error of bad flags.
func (u *UploadFlags) CheckUpload(cmd *cobra.Command) error {
	for _, flag := range []string{"upload-method", "upload-headers", "upload-ca"} {
		if u.URL == "" && cmd.Flags().Changed(flag) {
			return cli.Usage("--"+flag+" is for --upload", "add --upload URL")
		}
	}
	return cmp.Or(
		cli.RejectEmpty(cmd, "upload", "upload-headers", "upload-ca"),
		cli.OneOf(cmd, "upload-method", u.Method, []string{http.MethodPut, http.MethodPost}),
	)
}

// UploadTarget returns where archives are sent; nil without --upload. It reads the files that the flags name.
func (u *UploadFlags) UploadTarget() (*upload.Target, error) {
	if u.URL == "" {
		return nil, nil
	}
	t, err := upload.New(upload.Options{
		URL: u.URL, Method: u.Method, Headers: u.Headers, CA: u.CA, ReadFile: cli.ReadFile,
	})
	if err != nil {
		return nil, cli.Usage("--upload: "+strings.TrimPrefix(err.Error(), "open "),
			"for example --upload 'https://logs.example.com/kdiag/{node}/{time}-{cause}.tar.zst'")
	}
	return t, nil
}
