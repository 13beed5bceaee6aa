package libmoe;

/** A call that failed. A status of a newer library that Moe has no constant for keeps its number. */
public class MoeException extends RuntimeException {
  private static final long serialVersionUID = 1;
  private final int status;
  private final String statusName;

  public MoeException(int status, String statusName, String sentence) {
    super(statusName + " (" + status + "): " + sentence);
    this.status = status;
    this.statusName = statusName;
  }

  /** One of Moe.MOE_ERROR_*, or the number of a newer library. */
  public int status() {
    return status;
  }

  /** "MOE_ERROR_BUSY" and the like; "MOE_ERROR_UNKNOWN" for a number that the library does not know. */
  public String statusName() {
    return statusName;
  }
}
